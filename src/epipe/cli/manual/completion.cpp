#include "epipe/cli/manual/completion.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

namespace epipe::cli::manual {
namespace {

// The part of "epipe codec encode" after the program's name.
std::string words_after_program(const Command& command) {
  const std::size_t space = command.path.find(' ');
  return space == std::string::npos ? "" : command.path.substr(space + 1);
}

std::vector<std::string> names_below(const Command& command) {
  std::vector<std::string> names;
  for (const Command& below : command.commands) names.push_back(below.name());
  return names;
}

std::vector<std::string> names_of_flags(const Command& command) {
  std::vector<std::string> names;
  for (const Flag& flag : command.flags) {
    if (!flag.is_argument) names.insert(names.end(), flag.names.begin(), flag.names.end());
  }
  return names;
}

bool takes_file(const Flag& flag) { return flag.choices.empty() && (flag.type == "TEXT" || flag.type == "FILE"); }

bool has_arguments(const Command& command) {
  return std::any_of(command.flags.begin(), command.flags.end(), [](const Flag& flag) { return flag.is_argument; });
}

// Patterns for the shell's `case`, one per flag with a value: files, no suggestions, or choices.
std::string case_values(const Command& command) {
  std::string files, numbers, choices;
  const auto add = [&](std::string& pattern, const std::string& name) {
    pattern += (pattern.empty() ? "" : "|") + fmt::format("'{}'", name);
  };
  for (const Flag& flag : command.flags) {
    if (flag.is_argument || flag.type.empty()) continue;
    for (const std::string& name : flag.names) {
      if (!flag.choices.empty())
        choices += fmt::format("        '{}') kind=choices; choices='{}' ;;\n", name, fmt::join(flag.choices, " "));
      if (flag.choices.empty()) add(takes_file(flag) ? files : numbers, name);
    }
  }
  if (!files.empty()) files = fmt::format("        {}) kind=files ;;\n", files);
  if (!numbers.empty()) numbers = fmt::format("        {}) kind=number ;;\n", numbers);
  return choices + files + numbers;
}

std::string case_table(const Command& program) {
  std::string table;
  for (const Command* const command : all_commands(program)) {
    table += fmt::format("    '{}')\n      below='{}' arguments='{}'\n      flags='{}'\n      case $2 in\n{}      esac ;;\n",
                         words_after_program(*command), fmt::join(names_below(*command), " "), has_arguments(*command) ? "files" : "",
                         fmt::join(names_of_flags(*command), " "), case_values(*command));
  }
  return table;
}

// Inserts the function used by both bash and zsh into a script: _epipe_at COMMAND FLAG sets the command's suggestions and the kind of the
// flag's value.
std::string with_table(std::string script, const Command& program) {
  static constexpr std::string_view kTable = "%TABLE%";
  return script.replace(script.find(kTable), kTable.size(),
                        "_epipe_at() {\n  below= arguments= flags= kind= choices=\n  case $1 in\n" + case_table(program) + "  esac\n}\n");
}

// A word of fish in single quotes.
std::string quoted(const std::string& text) {
  std::string result = "'";
  for (const char c : text) {
    if (c == '\'' || c == '\\') result += '\\';
    result += c;
  }
  return result + "'";
}

std::string fish_flag(const std::string& at, const Flag& flag) {
  std::string line = at;
  for (const std::string& name : flag.names) line += name.starts_with("--") ? " -l " + name.substr(2) : " -s " + name.substr(1);
  if (!flag.type.empty()) line += takes_file(flag) ? " -r -F" : " -x";
  if (!flag.choices.empty()) line += fmt::format(" -a '{}'", fmt::join(flag.choices, " "));
  return line + " -d " + quoted(flag.help) + "\n";
}

std::string fish_command(const Command& command) {
  const std::string at = fmt::format("complete -c epipe -n '__epipe_is \"{}\"'", words_after_program(command));
  std::string text;
  for (const Command& below : command.commands) text += fmt::format("{} -f -a {} -d {}\n", at, below.name(), quoted(below.help));
  for (const Flag& flag : command.flags) {
    if (!flag.is_argument) text += fish_flag(at, flag);
  }
  return text + at + (has_arguments(command) ? " -F\n" : " -f\n");
}

}  // namespace

std::string bash_completion(const Command& program) {
  static constexpr const char* kScript = R"(# bash completion for epipe, made by epipe info --completion bash from the program's own flags.
%TABLE%
_epipe() {
  local below arguments flags kind choices command='' word previous='' i
  local current=${COMP_WORDS[COMP_CWORD]}
  for ((i = 1; i < COMP_CWORD; i++)); do
    word=${COMP_WORDS[i]}
    [ "$word" = = ] && continue                            # --flag=value
    if [ "$word" = -- ]; then command='' previous=''; continue; fi    # epipe launch -- train ...
    _epipe_at "$command" "$previous"
    previous=$word
    [ -n "$kind" ] && { previous=''; continue; }           # the value of a flag
    case " $below " in *" $word "*) command="${command:+$command }$word" ;; esac
  done
  _epipe_at "$command" "$previous"
  [ "$current" = = ] && current=''
  case $kind in
    choices) mapfile -t COMPREPLY < <(compgen -W "$choices" -- "$current"); return ;;
    number) COMPREPLY=(); return ;;
    files) ;;
    *) case $current in -*) below=$flags ;; esac
       [ -z "$below$arguments" ] && below=$flags
       if [ -n "$below" ]; then mapfile -t COMPREPLY < <(compgen -W "$below" -- "$current"); return; fi ;;
  esac
  compopt -o filenames 2> /dev/null
  mapfile -t COMPREPLY < <(compgen -f -- "$current")
}
complete -F _epipe epipe
)";
  return with_table(kScript, program);
}

std::string zsh_completion(const Command& program) {
  static constexpr const char* kScript = R"(#compdef epipe
# zsh completion for epipe, made by epipe info --completion zsh from the program's own flags.
%TABLE%
_epipe() {
  local below arguments flags kind choices command='' word previous='' i
  local current=${words[CURRENT]}
  for ((i = 2; i < CURRENT; i++)); do
    word=${words[i]}
    if [[ $word = -- ]]; then command='' previous=''; continue; fi    # epipe launch -- train ...
    _epipe_at "$command" "$previous"
    previous=$word
    [[ -n $kind ]] && { previous=''; continue }            # the value of a flag
    [[ " $below " = *" $word "* ]] && command="${command:+$command }$word"
  done
  if [[ $current = --*=* ]]; then previous=${current%%=*}; compset -P '*='; fi
  _epipe_at "$command" "$previous"
  case $kind in
    choices) compadd -- ${=choices} ;;
    number) ;;
    files) _files ;;
    *) if [[ $current = -* || -z $below$arguments ]]; then compadd -- ${=flags}
       elif [[ -n $below ]]; then compadd -- ${=below}
       else _files; fi ;;
  esac
}
if [ "${funcstack[1]}" = _epipe ]; then _epipe "$@"; else compdef _epipe epipe; fi
)";
  return with_table(kScript, program);
}

std::string fish_completion(const Command& program) {
  std::string paths;
  for (const Command* const command : all_commands(program)) {
    if (command != &program) paths += (paths.empty() ? "" : " ") + quoted(words_after_program(*command));
  }
  std::string script = fmt::format(R"(# fish completion for epipe, made by epipe info --completion fish from the program's own flags.
function __epipe_is
  set -l command ''
  for word in (commandline -opc)[2..-1]
    set -l longer (string trim -- "$command $word")
    if test "$word" = --
      set command ''
    else if contains -- $longer {}
      set command $longer
    end
  end
  test "$command" = "$argv[1]"
end
)",
                                   paths);
  for (const Command* const command : all_commands(program)) script += fish_command(*command);
  return script;
}

}  // namespace epipe::cli::manual
