// Dropout. PyTorch takes a fused kernel on accelerators, which scales by another route than the
// CPU's unfused one and differs in the last bit; here the CPU's route is taken.
#include "aten/bridge.h"
#include "aten/kernels.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/dropout_native.h>
#include <ATen/ops/empty_like.h>

namespace torchneuron {

at::Tensor dropout(const at::Tensor& input, double p, bool train) {
  // What is traced comes first: its sizes may be symbols.
  const bool traced = partsAreWatched() || input.key_set().has(c10::DispatchKey::Python);
  const bool fused = train && p > 0 && p < 1;
  if (traced || !fused || input.numel() == 0) {
    return at::native::dropout(input, p, train);
  }
  auto noise = at::empty_like(input);
  noise.bernoulli_(1 - p);
  noise.div_(1 - p);
  return input * noise;
}

}  // namespace torchneuron
