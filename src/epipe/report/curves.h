#pragma once

#include <string>
#include <vector>

#include "epipe/report/figure.h"
#include "epipe/report/run_data.h"

// The charts over steps and epochs.
namespace epipe::report {

Figure train_loss_chart(const std::vector<RunData>& runs);
Figure val_loss_chart(const std::vector<RunData>& runs);
Figure train_accuracy_chart(const std::vector<RunData>& runs);
Figure val_accuracy_chart(const std::vector<RunData>& runs);
Figure error_chart(const std::vector<RunData>& runs);
Figure bits_chart(const std::vector<RunData>& runs);
Figure loss_added_chart(const std::vector<RunData>& runs);  // for runs with audits
Figure harm_chart(const std::vector<RunData>& runs);        // likewise
Figure link_chart(const std::vector<RunData>& runs);  // for runs whose rates followed a link

// The CSS class for the colour of the run, cut or other item with this index.
std::string colour(std::size_t index);
// The CSS class for hiding everything of a run.
std::string run_class(std::size_t run);
// One entry per run, with the given kind of mark; none for a single run.
std::vector<Key> run_keys(const std::vector<RunData>& runs, const std::string& mark);

}  // namespace epipe::report
