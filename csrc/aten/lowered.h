// Eager operators as programs of their own: asked for with TORCHNEURON_EAGER=lowered.
#pragma once

#include "core/op_record.h"

#include <ATen/core/function_schema.h>
#include <ATen/core/stack.h>

#include <optional>
#include <vector>

namespace torchneuron {

// Runs an operator and returns its results; nothing where it has no program and the CPU's kernel
// is to run. `arguments` are all of the schema's. May throw.
using LoweredRunner = std::optional<torch::jit::Stack> (*)(const OpRecord& op,
                                                           const c10::FunctionSchema& schema,
                                                           at::ArrayRef<c10::IValue> arguments);

// To be called before the first use of the device, which decides about the kernels.
void setLoweredRunner(LoweredRunner runner);
LoweredRunner loweredRunner();

}  // namespace torchneuron
