// model/ must not see pipeline/: tools/check_layers.py refuses this.
#include "epipe/pipeline/pipeline.h"
