// base/ sees nothing: tools/check_layers.py refuses this.
#include "epipe/wire/frame.h"
