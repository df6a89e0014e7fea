#include "epipe/report/figure.h"

#include <fmt/format.h>

#include "epipe/report/text.h"

namespace epipe::report {
namespace {

std::string to_html(const Key& key) {
  const std::string inside = fmt::format(R"(<i class="{}"></i>{})", escape(key.css), escape(key.text));
  if (key.toggles.empty()) return fmt::format(R"(<span class="key">{}</span>)", inside);
  return fmt::format(R"(<button type="button" class="key" aria-pressed="true" title="{}: show or hide" data-toggle="{}">{}</button>)",
                     escape(key.text), escape(key.toggles), inside);
}

}  // namespace

std::string to_html(const Figure& figure) {
  std::string keys;
  for (const Key& key : figure.keys) keys += to_html(key);
  const std::string note = figure.note.empty() ? "" : fmt::format("<p class=\"note\">{}</p>\n", escape(figure.note));
  return fmt::format("<figure id=\"{}\"{}>\n<figcaption><h2>{}</h2>\n{}<div class=\"keys\">{}</div></figcaption>\n{}</figure>\n", figure.id,
                     figure.wide ? R"( class="wide")" : "", escape(figure.title), note, keys,
                     figure.svg.empty() ? "<p class=\"none\">no data</p>\n" : figure.svg);
}

}  // namespace epipe::report
