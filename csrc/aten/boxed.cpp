#include "aten/boxed.h"

#include "aten/frame.h"
#include "core/device.h"
#include "core/generator.h"
#include "core/trace.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include <deque>
#include <memory>

namespace torchneuron {
namespace {

using torch::jit::Stack;

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

c10::IValue aliasOptionalList(
    Frame& frame,
    Originals& originals,
    const c10::IValue& value,
    Access access) {
  const auto list = value.toOptionalTensorList();
  auto& kept = originals.lists.emplace_back();
  kept.reserve(list.size()); // the frame points at its elements
  c10::List<std::optional<at::Tensor>> aliases;
  aliases.reserve(list.size());
  for (size_t i = 0; i < list.size(); ++i) {
    std::optional<at::Tensor> tensor = list.get(i);
    if (tensor.has_value() && tensor->defined()) {
      tensor = frame.sharedAlias(kept.emplace_back(*std::move(tensor)), access);
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
void prepareArguments(
    Frame& frame,
    Originals& originals,
    const c10::FunctionSchema& schema,
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
      stack[first + i] =
          cpuGenerator(value.toOptional<at::Generator>(), frame.device());
    }
  }
}

void giveBackResults(Frame& frame, const OpRecord& record, size_t num_results, Stack& stack) {
  for (size_t i = stack.size() - num_results; i < stack.size(); ++i) {
    auto& value = stack[i];
    if (value.isTensor()) {
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

void run(
    OpRecord& record,
    const c10::OperatorHandle& op,
    Stack& stack,
    c10::DispatchKeySet kernel) {
  const auto& schema = op.schema();
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

void runFallback(const c10::OperatorHandle& op, Stack* stack, c10::DispatchKey kernel) {
  const auto& name = op.operator_name();
  TORCH_CHECK_NOT_IMPLEMENTED(
      op.hasKernelForDispatchKey(kernel) ||
          op.hasKernelForDispatchKey(c10::DispatchKey::CompositeExplicitAutograd),
      "Could not run '",
      name,
      "' on the neuron device: it has neither a neuron kernel nor one for ",
      kernel,
      "\n\nhint: register one for \"cpu\" (torch.library), neuron then runs it on its own memory");
  run(opRecord(name.name.c_str(), name.overload_name.c_str()),
      op,
      *stack,
      c10::DispatchKeySet(kernel));
}

void fallback(const c10::OperatorHandle& op, Stack* stack) {
  runFallback(op, stack, c10::DispatchKey::CPU);
}

void quantizedFallback(const c10::OperatorHandle& op, Stack* stack) {
  runFallback(op, stack, c10::DispatchKey::QuantizedCPU);
}

void nestedFallback(const c10::OperatorHandle& op, Stack* stack) {
  runFallback(op, stack, c10::DispatchKey::NestedTensorCPU);
}

} // namespace

torch::CppFunction boxedAliasKernel(const c10::OperatorHandle& op, c10::DispatchKey kernel) {
  const auto& name = op.operator_name();
  auto& record = opRecord(name.name.c_str(), name.overload_name.c_str());
  return torch::CppFunction::makeFromBoxedKernel(
      c10::BoxedKernel::makeFromFunctor(
          std::make_unique<BoxedAlias>(record, c10::DispatchKeySet(kernel))));
}

torch::CppFunction boxedFallback() {
  return torch::CppFunction::makeFromBoxedFunction<&fallback>();
}

torch::CppFunction boxedQuantizedFallback() {
  return torch::CppFunction::makeFromBoxedFunction<&quantizedFallback>();
}

torch::CppFunction boxedNestedFallback() {
  return torch::CppFunction::makeFromBoxedFunction<&nestedFallback>();
}

} // namespace torchneuron
