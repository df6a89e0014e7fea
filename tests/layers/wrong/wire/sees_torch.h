// wire/ does without LibTorch: tools/check_layers.py refuses this.
#include <torch/types.h>
