#include "aten/boxed.h"

#include "aten/frame.h"
#include "aten/lowered.h"
#include "core/device.h"
#include "core/fork.h"
#include "core/generator.h"
#include "core/trace.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <unordered_map>

namespace torchneuron {
namespace {

using torch::jit::Stack;

LoweredRunner g_lowered_runner = nullptr;

// The caller's values, which the frame points into; the stack holds the aliases.
struct Originals {
  std::vector<c10::IValue> values;
  std::deque<std::vector<at::Tensor>> lists;
};

at::Tensor aliasIfDefined(Frame& frame, const at::Tensor& tensor, Access access) {
  return tensor.defined() ? frame.sharedAlias(tensor, access) : tensor;
}

c10::IValue aliasList(Frame& frame, Originals& originals, const c10::IValue& value, Access access) {
  auto& kept = originals.lists.emplace_back(value.toTensorVector());
  c10::List<at::Tensor> aliases;
  aliases.reserve(kept.size());
  for (const auto& tensor : kept) {
    aliases.push_back(aliasIfDefined(frame, tensor, access));
  }
  return aliases;
}

c10::IValue aliasOptionalList(Frame& frame, Originals& originals, const c10::IValue& value,
                              Access access) {
  const auto list = value.toOptionalTensorList();
  auto& kept = originals.lists.emplace_back();
  kept.reserve(list.size());  // the frame points at its elements
  c10::List<std::optional<at::Tensor>> aliases;
  aliases.reserve(list.size());
  for (size_t i = 0; i < list.size(); ++i) {
    std::optional<at::Tensor> tensor = list.get(i);
    if (tensor.has_value() && tensor->defined()) {
      tensor = frame.sharedIndex(kept.emplace_back(*std::move(tensor)), access);
    }
    aliases.push_back(std::move(tensor));
  }
  return aliases;
}

bool isGenerator(const c10::Argument& argument) {
  const auto& type = argument.type();
  if (type->kind() == c10::TypeKind::OptionalType) {
    return type->expectRef<c10::OptionalType>().getElementType()->kind() ==
           c10::TypeKind::GeneratorType;
  }
  return type->kind() == c10::TypeKind::GeneratorType;
}

// Replaces the neuron arguments on top of the stack by what a CPU kernel takes.
void prepareArguments(Frame& frame, Originals& originals, const c10::FunctionSchema& schema,
                      Stack& stack) {
  const auto& arguments = schema.arguments();
  const auto first = stack.size() - arguments.size();
  originals.values.assign(stack.begin() + static_cast<ptrdiff_t>(first), stack.end());
  for (size_t i = 0; i < arguments.size(); ++i) {
    const auto* alias_info = arguments[i].alias_info();
    const auto access =
        alias_info != nullptr && alias_info->isWrite() ? Access::kWrite : Access::kRead;
    const auto& value = originals.values[i];
    if (value.isTensor()) {
      stack[first + i] = aliasIfDefined(frame, value.toTensor(), access);
    } else if (value.isTensorList()) {
      stack[first + i] = aliasList(frame, originals, value, access);
    } else if (value.isOptionalTensorList()) {
      stack[first + i] = aliasOptionalList(frame, originals, value, access);
    } else if (value.isDevice()) {
      frame.place(value.toDevice());
      stack[first + i] = c10::Device(c10::kCPU);
    }
  }
  frame.begin();
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (isGenerator(arguments[i])) {
      const auto& value = originals.values[i];
      stack[first + i] = cpuGenerator(value.toOptional<at::Generator>(), frame.device());
    }
  }
}

void giveBackResults(Frame& frame, const OpRecord& record, size_t num_results, Stack& stack) {
  const auto first = stack.size() - num_results;
  for (size_t i = 0; i < num_results; ++i) {
    auto& value = stack[first + i];
    if (value.isTensor() && C10_UNLIKELY((record.host_results >> i) & 1)) {
      value = value.toTensor().clone();  // the kernel's own lies in the device's pool
    } else if (value.isTensor()) {
      value = frame.wrap(std::move(value).toTensor());
    } else if (value.isTensorList()) {
      c10::List<at::Tensor> results;
      for (auto& tensor : value.toTensorVector()) {
        results.push_back(frame.wrap(std::move(tensor)));
      }
      value = std::move(results);
    } else if (value.isScalar()) {
      countHostSync(record.name.c_str(), c10::ScalarType::Undefined);
    }
  }
}

// What a frame checks, for an operator that runs without one. Returns the dtype to count it by.
c10::ScalarType checkArguments(const OpRecord& record, at::ArrayRef<c10::IValue> arguments) {
  auto first = c10::ScalarType::Undefined;
  const auto check = [&](const at::Tensor& tensor) {
    if (tensor.defined() && tensor.device().type() == c10::kPrivateUse1) {
      checkRefused(record, tensor.scalar_type());
      if (first == c10::ScalarType::Undefined) {
        first = tensor.scalar_type();
      }
    }
  };
  for (const auto& argument : arguments) {
    if (argument.isTensor()) {
      check(argument.toTensor());
    } else if (argument.isTensorList()) {
      for (const auto& tensor : argument.toTensorVector()) {
        check(tensor);
      }
    }
  }
  if (first != c10::ScalarType::Undefined) {
    checkFirstRefused(record, first);
  }
  return first;
}

// Whether the operator ran as a program of its own; the stack then holds its results.
bool ranLowered(OpRecord& record, const c10::FunctionSchema& schema, Stack& stack) {
  const auto runner = loweredRunner();
  if (C10_LIKELY(runner == nullptr)) {
    return false;
  }
  enterThread();
  const auto arguments = torch::jit::last(stack, schema.arguments().size());
  const auto dtype = checkArguments(record, arguments);
  auto results = runner(record, schema, arguments);
  if (!results.has_value()) {
    return false;
  }
  countExecuted(record, dtype);
  torch::jit::drop(stack, schema.arguments().size());
  for (auto& result : *results) {
    stack.push_back(std::move(result));
  }
  return true;
}

void run(OpRecord& record, const c10::OperatorHandle& op, Stack& stack,
         c10::DispatchKeySet kernel) {
  const auto& schema = op.schema();
  if (kernel == kCpuKernel && ranLowered(record, schema, stack)) {
    return;
  }
  Originals originals;
  Frame frame(record);
  prepareArguments(frame, originals, schema, stack);
  op.redispatchBoxed(kernel, &stack);
  frame.finish();
  giveBackResults(frame, record, schema.returns().size(), stack);
}

class BoxedAlias final : public c10::OperatorKernel {
 public:
  BoxedAlias(OpRecord& record, c10::DispatchKeySet kernel) : record_(record), kernel_(kernel) {}
  void operator()(const c10::OperatorHandle& op, c10::DispatchKeySet /*keys*/, Stack* stack) {
    run(record_, op, *stack, kernel_);
  }

 private:
  OpRecord& record_;
  c10::DispatchKeySet kernel_;
};

struct Fallbacks {
  std::mutex mutex;
  // By the key of the kernel that runs: an operator may have one for dense tensors only.
  std::map<c10::DispatchKey, std::unordered_map<c10::OperatorHandle, OpRecord*>> records;
};

Fallbacks& fallbacks() {
  static auto* instance = new Fallbacks;  // leaked: kernels may run during exit
  return *instance;
}

std::mutex& fallbackMutex() {
  return fallbacks().mutex;
}

[[maybe_unused]] const bool g_held = holdAcrossForks<&fallbackMutex>();

// The record of an operator that fell back, found by its handle; it is asked for a kernel once.
OpRecord& fallbackRecord(const c10::OperatorHandle& op, c10::DispatchKey kernel) {
  {
    std::lock_guard<std::mutex> lock(fallbackMutex());
    const auto& records = fallbacks().records[kernel];
    const auto found = records.find(op);
    if (found != records.end()) {
      return *found->second;
    }
  }
  const auto& name = op.operator_name();
  TORCH_CHECK_NOT_IMPLEMENTED(
      op.hasComputedKernelForDispatchKey(kernel), "Could not run '", name,
      "' on the neuron device: it has neither a neuron nor a ", kernel, " kernel\n\nhint: ",
      kernel == c10::DispatchKey::CPU
          ? "register one for \"cpu\" (torch.library), neuron then runs it on its own memory"
          : "convert sparse tensors with .to_dense()");
  auto& record = opRecord(name.name.c_str(), name.overload_name.c_str());
  std::lock_guard<std::mutex> lock(fallbackMutex());
  fallbacks().records[kernel].emplace(op, &record);
  return record;
}

template <c10::DispatchKey kernel>
void fallback(const c10::OperatorHandle& op, Stack* stack) {
  run(fallbackRecord(op, kernel), op, *stack, c10::DispatchKeySet(kernel));
}

}  // namespace

void setLoweredRunner(LoweredRunner runner) {
  g_lowered_runner = runner;
}

LoweredRunner loweredRunner() {
  return g_lowered_runner;
}

c10::KernelFunction boxedAliasKernel(const c10::OperatorHandle& op, c10::DispatchKey kernel) {
  const auto& name = op.operator_name();
  auto& record = opRecord(name.name.c_str(), name.overload_name.c_str());
  return c10::KernelFunction::makeFromBoxedKernel(c10::BoxedKernel::makeFromFunctor(
      std::make_unique<BoxedAlias>(record, c10::DispatchKeySet(kernel))));
}

template <c10::DispatchKey kernel>
c10::KernelFunction boxedFallback() {
  return c10::KernelFunction::makeFromBoxedFunction<&fallback<kernel>>();
}
template c10::KernelFunction boxedFallback<c10::DispatchKey::CPU>();
template c10::KernelFunction boxedFallback<c10::DispatchKey::SparseCPU>();
template c10::KernelFunction boxedFallback<c10::DispatchKey::SparseCsrCPU>();

}  // namespace torchneuron
