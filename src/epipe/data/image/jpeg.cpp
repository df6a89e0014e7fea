// libjpeg(-turbo), with its default transforms: the pixels PIL and torchvision give.
#include <cstdio>
// jpeglib.h wants FILE
#include <fmt/format.h>
#include <jpeglib.h>

#include <array>
#include <csetjmp>

#include "epipe/data/image/image.h"

namespace epipe::data {
namespace {

// libjpeg reports errors by a call that must not return: it uses longjmp, which skips only frames without destructors.
struct Errors {
  jpeg_error_mgr base;  // first, so that a pointer to it is a pointer to this
  std::jmp_buf jump;
  std::array<char, JMSG_LENGTH_MAX> message;
};

[[noreturn]] void on_error(j_common_ptr info) {
  auto* const errors = reinterpret_cast<Errors*>(info->err);
  (*info->err->format_message)(info, errors->message.data());
  std::longjmp(errors->jump, 1);
}

void on_message(j_common_ptr) {}

boolean on_end(j_decompress_ptr info) {
  auto* const errors = reinterpret_cast<Errors*>(info->err);
  std::snprintf(errors->message.data(), errors->message.size(), "the file ends too early");
  std::longjmp(errors->jump, 1);
}

// The state of one decoding. Its destructor runs after any jump.
struct Decoder {
  Decoder() {
    info.err = jpeg_std_error(&errors.base);
    errors.base.error_exit = on_error;
    errors.base.output_message = on_message;
  }
  ~Decoder() { jpeg_destroy_decompress(&info); }
  Decoder(const Decoder&) = delete;
  Decoder& operator=(const Decoder&) = delete;

  // False if libjpeg reported an error; errors.message says why.
  bool begin(ByteView bytes);
  bool rows();

  jpeg_decompress_struct info{};
  Errors errors{};
  Image image;
  std::vector<std::uint8_t> line;
};

bool is_cmyk(const jpeg_decompress_struct& info) { return info.jpeg_color_space == JCS_CMYK || info.jpeg_color_space == JCS_YCCK; }

bool Decoder::begin(ByteView bytes) {
  if (setjmp(errors.jump) != 0) return false;  // NOLINT(cert-err52-cpp): libjpeg's way
  jpeg_create_decompress(&info);
  jpeg_mem_src(&info, const_cast<unsigned char*>(reinterpret_cast<const unsigned char*>(bytes.data())),
               static_cast<unsigned long>(bytes.size()));
  info.src->fill_input_buffer = on_end;
  jpeg_read_header(&info, TRUE);
  info.out_color_space = is_cmyk(info) ? JCS_CMYK : JCS_RGB;
  return true;
}

// Adobe stores CMYK inverted, so the product of ink and black is the colour.
void cmyk_to_rgb(const std::uint8_t* in, std::uint8_t* out, std::int64_t width, bool inverted) {
  for (std::int64_t x = 0; x < width; ++x, in += 4, out += 3) {
    const unsigned black = inverted ? in[3] : 255U - in[3];
    for (int c = 0; c < 3; ++c) {
      const unsigned ink = inverted ? 255U - in[c] : in[c];
      const unsigned product = ink * black + 128;
      const unsigned shade = ((product >> 8U) + product) >> 8U;  // ink * black / 255, rounded
      out[c] = static_cast<std::uint8_t>(black - shade);
    }
  }
}

bool Decoder::rows() {
  if (setjmp(errors.jump) != 0) return false;  // NOLINT(cert-err52-cpp): libjpeg's way
  jpeg_start_decompress(&info);
  while (info.output_scanline < info.output_height) {
    const std::int64_t y = info.output_scanline;
    std::uint8_t* target = is_cmyk(info) ? line.data() : image.row(y);
    jpeg_read_scanlines(&info, &target, 1);
    if (is_cmyk(info)) cmyk_to_rgb(line.data(), image.row(y), image.width, info.saw_Adobe_marker != 0);
  }
  return true;
}

}  // namespace

Result<Image> decode_jpeg(ByteView bytes) {
  Decoder decoder;
  const auto failed = [&] { return Error{ErrorCode::kBadFile, fmt::format("broken JPEG: {}", decoder.errors.message.data())}; };
  if (!decoder.begin(bytes)) return failed();
  const std::uint64_t pixels = std::uint64_t{decoder.info.image_width} * decoder.info.image_height;
  if (pixels == 0 || pixels > kMaxPixels)
    return Error{ErrorCode::kTooLarge, fmt::format("a JPEG of {} x {} pixels", decoder.info.image_width, decoder.info.image_height)};
  decoder.image = Image(decoder.info.image_width, decoder.info.image_height);
  decoder.line.resize(static_cast<std::size_t>(decoder.image.width) * 4);
  if (!decoder.rows()) return failed();
  return std::move(decoder.image);
}

Part jpeg_part() { return {"jpeg", true, fmt::format("libjpeg, interface {}", JPEG_LIB_VERSION)}; }

}  // namespace epipe::data
