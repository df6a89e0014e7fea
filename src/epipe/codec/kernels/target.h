#pragma once

// Functions between BEGIN and END are compiled for the named CPU features; headers included before keep the baseline, so
// no inline function of the standard library can end up with instructions the CPU may lack.
#define EPIPE_PRAGMA(text) _Pragma(#text)
#if defined(__clang__)
#define EPIPE_BEGIN_TARGET(features) EPIPE_PRAGMA(clang attribute push(__attribute__((target(features))), apply_to = function))
#define EPIPE_END_TARGET EPIPE_PRAGMA(clang attribute pop)
#else
#define EPIPE_BEGIN_TARGET(features) EPIPE_PRAGMA(GCC push_options) EPIPE_PRAGMA(GCC target(features))
#define EPIPE_END_TARGET EPIPE_PRAGMA(GCC pop_options)
#endif
