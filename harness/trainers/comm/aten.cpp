// Owns the precompiled <ATen/ATen.h> that other rooms reuse.
#include <ATen/ATen.h>
