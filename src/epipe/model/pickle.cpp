#include "epipe/model/pickle.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <unordered_map>

#include "epipe/model/named_tensors.h"

namespace epipe::model {
namespace {

using PickleKind = PickleValue::Kind;

// https://docs.python.org/3/library/pickletools.html
enum class Op : std::uint8_t {
  kMark = '(',
  kStop = '.',
  kPop = '0',
  kBinFloat = 'G',
  kBinInt = 'J',
  kBinInt1 = 'K',
  kBinInt2 = 'M',
  kNone = 'N',
  kBinPersId = 'Q',
  kReduce = 'R',
  kBinUnicode = 'X',
  kAppend = 'a',
  kBuild = 'b',
  kGlobal = 'c',
  kAppends = 'e',
  kBinGet = 'h',
  kLongBinGet = 'j',
  kEmptyList = ']',
  kEmptyTuple = ')',
  kEmptyDict = '}',
  kBinPut = 'q',
  kLongBinPut = 'r',
  kSetItem = 's',
  kTuple = 't',
  kSetItems = 'u',
  kProto = 0x80,
  kTuple1 = 0x85,
  kTuple2 = 0x86,
  kTuple3 = 0x87,
  kNewTrue = 0x88,
  kNewFalse = 0x89,
  kLong1 = 0x8a,
};

constexpr std::array<std::string_view, 4> kFunctions = {"collections.OrderedDict", "torch._utils._rebuild_tensor_v2",
                                                        "torch._utils._rebuild_parameter", "torch.Size"};

// Runs the opcodes on a stack of values.
class Machine {
 public:
  explicit Machine(ByteView bytes) : reader_(bytes) {}

  Result<Pickle> run() {
    while (!stopped_) {
      const auto op = reader_.take<std::uint8_t>();
      if (!op) return Error{ErrorCode::kTruncated, "the pickle ends without its stop"};
      if (!step(static_cast<Op>(*op))) {
        if (complaint_.empty()) complaint_ = fmt::format("opcode 0x{:02x} does not fit where it stands", *op);
        return bad_file(std::move(complaint_));
      }
    }
    if (stack_.size() != 1) return bad_file(fmt::format("expected one value at the end of the pickle, got {}", stack_.size()));
    pickle_.top = stack_[0];
    return std::move(pickle_);
  }

 private:
  bool step(Op op) {
    switch (op) {
      case Op::kProto: return version();
      case Op::kStop: return stopped_ = true;
      case Op::kMark: marks_.push_back(stack_.size()); return true;
      case Op::kPop: return take() != nullptr;
      case Op::kNone: return push(PickleKind::kNone);
      case Op::kNewTrue: return number(1);
      case Op::kNewFalse: return number(0);
      case Op::kBinInt: return fixed<std::int32_t>();
      case Op::kBinInt1: return fixed<std::uint8_t>();
      case Op::kBinInt2: return fixed<std::uint16_t>();
      case Op::kLong1: return long1();
      case Op::kBinFloat: return reader_.take<std::uint64_t>() && number(0);
      case Op::kBinUnicode: return text();
      case Op::kEmptyList: return push(PickleKind::kList);
      case Op::kEmptyTuple: return push(PickleKind::kTuple);
      case Op::kEmptyDict: return push(PickleKind::kDict);
      case Op::kTuple: return has_mark() && tuple(marked());
      case Op::kTuple1: return tuple(1);
      case Op::kTuple2: return tuple(2);
      case Op::kTuple3: return tuple(3);
      case Op::kAppend: return extend(PickleKind::kList, 1);
      case Op::kAppends: return has_mark() && extend(PickleKind::kList, marked());
      case Op::kSetItem: return extend(PickleKind::kDict, 2);
      case Op::kSetItems: return has_mark() && extend(PickleKind::kDict, marked());
      case Op::kBinPut: return put<std::uint8_t>();
      case Op::kLongBinPut: return put<std::uint32_t>();
      case Op::kBinGet: return get<std::uint8_t>();
      case Op::kLongBinGet: return get<std::uint32_t>();
      case Op::kGlobal: return global();
      case Op::kReduce: return reduce();
      case Op::kBuild: return build();
      case Op::kBinPersId: return storage();
    }
    return complain(fmt::format("opcode 0x{:02x} is not used by state dicts", static_cast<unsigned>(op)));
  }

  bool complain(std::string what) {
    complaint_ = std::move(what);
    return false;
  }

  bool version() {
    const auto protocol = reader_.take<std::uint8_t>();
    return protocol && (*protocol == 2 || complain(fmt::format("expected pickle protocol 2, torch.save's own, got {}", *protocol)));
  }

  // The stack below the innermost mark is not accessible until the mark is popped.
  std::size_t floor() const { return marks_.empty() ? 0 : marks_.back(); }
  PickleValue* take() {
    if (stack_.size() <= floor()) return nullptr;
    PickleValue* const value = stack_.back();
    stack_.pop_back();
    return value;
  }
  PickleValue* top() const { return stack_.size() > floor() ? stack_.back() : nullptr; }
  bool has_mark() const { return !marks_.empty(); }
  std::size_t marked() {
    const std::size_t count = stack_.size() - marks_.back();
    marks_.pop_back();
    return count;
  }
  bool push(PickleKind kind, std::int64_t number = 0, std::string_view text = {}) {
    stack_.push_back(&pickle_.values.emplace_back(PickleValue{kind, number, text}));
    return true;
  }

  bool number(std::int64_t value) { return push(PickleKind::kNumber, value); }
  template <typename T>
  bool fixed() {
    const auto value = reader_.take<T>();
    return value && number(*value);
  }
  bool long1() {
    const auto length = reader_.take<std::uint8_t>();
    const auto bytes = length && *length <= 8 ? reader_.take_bytes(*length) : std::nullopt;
    if (!bytes) return complain("expected a number of at most 64 bits");
    std::uint64_t value = 0;
    for (std::size_t i = 0; i < 8; ++i) {
      const bool negative = !bytes->empty() && (std::to_integer<unsigned>(bytes->back()) & 0x80) != 0;
      const std::uint64_t byte = i < bytes->size() ? std::to_integer<std::uint64_t>((*bytes)[i]) : (negative ? 0xff : 0);
      value |= byte << (8 * i);
    }
    return number(static_cast<std::int64_t>(value));
  }
  bool text() {
    const auto length = reader_.take<std::uint32_t>();
    const auto bytes = length ? reader_.take_bytes(*length) : std::nullopt;
    return bytes && push(PickleKind::kText, 0, {reinterpret_cast<const char*>(bytes->data()), bytes->size()});
  }

  // Pops the last `count` values.
  std::optional<std::vector<PickleValue*>> pop(std::size_t count) {
    if (stack_.size() - floor() < count) return std::nullopt;
    std::vector<PickleValue*> items(stack_.end() - static_cast<std::ptrdiff_t>(count), stack_.end());
    stack_.resize(stack_.size() - count);
    return items;
  }
  bool tuple(std::size_t count) {
    auto items = pop(count);
    if (!items) return false;
    push(PickleKind::kTuple);
    stack_.back()->items = std::move(*items);
    return true;
  }
  bool extend(PickleKind kind, std::size_t count) {
    const auto items = pop(count);
    if (!items || top() == nullptr || top()->kind != kind || (kind == PickleKind::kDict && count % 2 != 0)) return false;
    top()->items.insert(top()->items.end(), items->begin(), items->end());
    return true;
  }

  template <typename T>
  bool put() {
    const auto index = reader_.take<T>();
    if (!index || top() == nullptr) return false;
    memo_[*index] = top();
    return true;
  }
  template <typename T>
  bool get() {
    const auto index = reader_.take<T>();
    const auto found = index ? memo_.find(*index) : memo_.end();
    if (found == memo_.end()) return complain("the pickle uses a value it did not store");
    stack_.push_back(found->second);
    return true;
  }

  std::optional<std::string_view> line() {
    const ByteView rest = reader_.rest();
    const auto end = std::find(rest.begin(), rest.end(), std::byte{'\n'});
    if (end == rest.end()) return std::nullopt;
    const auto bytes = reader_.take_bytes(static_cast<std::uint64_t>(end - rest.begin()) + 1);
    return std::string_view(reinterpret_cast<const char*>(bytes->data()), bytes->size() - 1);
  }
  bool global() {
    const auto module = line();
    const auto name = module ? line() : std::nullopt;
    if (!name) return false;
    if (*module == "torch" && name->ends_with("Storage")) return push(PickleKind::kStorageType, 0, *name);
    for (const std::string_view known : kFunctions) {
      const bool same =
          known.starts_with(*module) && known.substr(module->size()).starts_with(".") && known.substr(module->size() + 1) == *name;
      if (same) return push(PickleKind::kFunction, 0, known);
    }
    return complain(
        fmt::format("the file asks for {}.{}, which no state dict needs; it is not loaded", in_quotes(*module), in_quotes(*name)));
  }

  bool reduce() {
    const PickleValue* const arguments = take();
    const PickleValue* const function = take();
    if (arguments == nullptr || function == nullptr || function->kind != PickleKind::kFunction || arguments->kind != PickleKind::kTuple)
      return false;
    const auto& items = arguments->items;
    if (function->text == kFunctions[0]) return items.empty() && push(PickleKind::kDict);
    if (function->text == kFunctions[1]) return tensor(items);
    const bool wanted = !items.empty() && items[0]->kind == (function->text == kFunctions[2] ? PickleKind::kTensor : PickleKind::kTuple);
    if (!wanted) return false;
    stack_.push_back(items[0]);  // not a copy: a file may ask for this often
    return true;
  }
  bool tensor(const std::vector<PickleValue*>& items) {
    const bool fits = items.size() >= 4 && items[0]->kind == PickleKind::kStorage && items[1]->kind == PickleKind::kNumber &&
                      items[2]->kind == PickleKind::kTuple && items[3]->kind == PickleKind::kTuple;
    if (!fits) return complain("expected a tensor's storage, offset, sizes and strides");
    push(PickleKind::kTensor);
    stack_.back()->items.assign(items.begin(), items.begin() + 4);
    return true;
  }
  // The attributes of a state dict (versions of its modules) are ignored.
  bool build() {
    const PickleValue* const state = take();
    return state != nullptr && top() != nullptr && top()->kind == PickleKind::kDict;
  }
  bool storage() {
    const PickleValue* const id = take();
    const bool fits = id != nullptr && id->kind == PickleKind::kTuple && id->items.size() == 5 && id->items[0]->text == "storage" &&
                      id->items[1]->kind == PickleKind::kStorageType && id->items[2]->kind == PickleKind::kText &&
                      id->items[4]->kind == PickleKind::kNumber;
    if (!fits) return complain("expected a storage's type, key, device and size");
    push(PickleKind::kStorage);
    stack_.back()->items = id->items;
    return true;
  }

  ByteReader reader_;
  Pickle pickle_;
  std::vector<PickleValue*> stack_;
  std::vector<std::size_t> marks_;
  std::unordered_map<std::uint32_t, PickleValue*> memo_;
  std::string complaint_;
  bool stopped_ = false;
};

}  // namespace

Result<Pickle> parse_pickle(ByteView bytes) { return Machine(bytes).run(); }

}  // namespace epipe::model
