#pragma once

#include <memory>

#include "epipe/data/dataset.h"
#include "epipe/data/image/recipe.h"

namespace epipe::data {

// Labelled images by id. Any thread may load.
class ImageSource {
 public:
  virtual ~ImageSource() = default;
  virtual std::int64_t size() const = 0;
  virtual std::int64_t classes() const = 0;
  virtual std::int64_t label(std::int64_t id) const = 0;
  // Throws std::runtime_error if the file is missing or damaged.
  virtual Image load(std::int64_t id) const = 0;
};

// Images after a recipe and normalization: [B, 3, size, size]. A sample's random numbers depend on (seed, epoch, step, id) only.
std::unique_ptr<Dataset> make_image_dataset(std::unique_ptr<ImageSource> source, const Recipe& recipe);

}  // namespace epipe::data
