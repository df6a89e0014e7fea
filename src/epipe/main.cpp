#include "epipe/epipe.h"

int main(int argc, char** argv) { return epipe::main(argc, argv, epipe::builtin_models()); }
