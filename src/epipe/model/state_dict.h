#pragma once

#include <string>

#include "epipe/base/bytes.h"
#include "epipe/base/result.h"
#include "epipe/model/named_tensors.h"

// State dicts in the format of torch.save(model.state_dict(), FILE) since PyTorch 1.6: a ZIP archive of
//
//   NAME/data.pkl   a pickle: names, and for each tensor its storage, offset, sizes and strides
//   NAME/data/KEY   the values of storage KEY
//
// The pickle is read, not executed: see pickle.h.
namespace epipe::model {

// The tensors, on the CPU; tensors that share a storage in the file share it here. Also reads checkpoints with the state dict under
// "state_dict" or "model". For untrusted bytes; allocates little more than the size of the archive.
Result<NamedTensors> parse_state_dict(ByteView bytes);

}  // namespace epipe::model
