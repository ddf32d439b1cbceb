// The alias kernel as a template over a signature: no IValue, no stack. Which arguments are
// written is read from the schema text at compile time.
#pragma once

#include "aten/frame.h"
#include "aten/registrar.h"
#include "core/device.h"
#include "core/generator.h"
#include "core/trace.h"

#include <ATen/core/IListRef.h>
#include <ATen/core/List.h>

#include <memory>
#include <string_view>
#include <tuple>

namespace torchneuron {

// Bit i is set where argument i carries a write annotation, as `Tensor(a!) self` does.
constexpr uint64_t writtenArguments(std::string_view schema) {
  uint64_t mask = 0;
  int argument = 0;
  int depth = 0;
  bool started = false;
  for (size_t i = 0; i < schema.size(); ++i) {
    const char c = schema[i];
    if (c == '(' || c == '[') {
      ++depth;
      started = true;
    } else if (c == ')' || c == ']') {
      if (--depth == 0 && started && c == ')') {
        break;  // the rest are returns
      }
    } else if (c == '!' && depth >= 2) {
      mask |= uint64_t{1} << argument;
    } else if (c == ',' && depth == 1) {
      ++argument;
    } else if (c == '*' && depth == 1) {
      --argument;  // the keyword-only marker takes a comma of its own
    }
  }
  return mask;
}
static_assert(writtenArguments("f(Tensor x, *, Tensor(a!) out) -> Tensor(a!)") == 0b10);
static_assert(writtenArguments("f_(Tensor(a!)[] x, int[2] y=[1, 1]) -> ()") == 0b1);

// How one argument of type T is handed to the CPU kernel.
template <class T>
struct Argument {
  Argument(Frame& /*frame*/, T value, Access /*access*/) : value_(std::forward<T>(value)) {}
  T get(Frame& /*frame*/) { return std::forward<T>(value_); }
  T value_;
};

template <>
struct Argument<const at::Tensor&> {
  Argument(Frame& frame, const at::Tensor& tensor, Access access) : alias_(frame, tensor, access) {}
  const at::Tensor& get(Frame& /*frame*/) { return alias_.get(); }
  BorrowedTensor alias_;
};

template <>
struct Argument<at::Tensor&> {
  Argument(Frame& frame, at::Tensor& tensor, Access access) : alias_(frame, tensor, access) {}
  at::Tensor& get(Frame& /*frame*/) { return alias_.get(); }
  BorrowedTensor alias_;
};

// The aliases of containers own a reference: containers of borrowed tensors do not exist.
inline at::Tensor shared(Frame& frame, const at::Tensor& tensor, Access access) {
  return tensor.defined() ? frame.sharedAlias(tensor, access) : tensor;
}

template <>
struct Argument<const std::optional<at::Tensor>&> {
  Argument(Frame& frame, const std::optional<at::Tensor>& tensor, Access access) {
    if (tensor.has_value() && tensor->defined()) {
      alias_ = shared(frame, *tensor, access);
    }
  }
  const std::optional<at::Tensor>& get(Frame& /*frame*/) { return alias_; }
  std::optional<at::Tensor> alias_;
};

template <>
struct Argument<at::TensorList> {
  Argument(Frame& frame, at::TensorList tensors, Access access) {
    aliases_.reserve(tensors.size());
    for (const auto& tensor : tensors) {
      aliases_.push_back(shared(frame, tensor, access));
    }
  }
  at::TensorList get(Frame& /*frame*/) { return aliases_; }
  c10::SmallVector<at::Tensor, 8> aliases_;
};

template <>
struct Argument<const at::ITensorListRef&> {
  Argument(Frame& frame, const at::ITensorListRef& tensors, Access access) {
    aliases_.reserve(tensors.size());
    for (const at::Tensor& tensor : tensors) {
      aliases_.push_back(shared(frame, tensor, access));
    }
  }
  at::ITensorListRef get(Frame& /*frame*/) { return at::TensorList(aliases_); }
  c10::SmallVector<at::Tensor, 8> aliases_;
};

template <>
struct Argument<const c10::List<std::optional<at::Tensor>>&> {
  Argument(Frame& frame, const c10::List<std::optional<at::Tensor>>& tensors, Access access) {
    originals_.reserve(tensors.size());
    aliases_.reserve(tensors.size());
    for (size_t i = 0; i < tensors.size(); ++i) {
      std::optional<at::Tensor> tensor = tensors.get(i);
      if (tensor.has_value() && tensor->defined()) {
        originals_.push_back(*std::move(tensor));
        aliases_.push_back(frame.sharedIndex(originals_.back(), access));
      } else {
        aliases_.push_back(std::move(tensor));
      }
    }
  }
  const c10::List<std::optional<at::Tensor>>& get(Frame& /*frame*/) { return aliases_; }
  std::vector<at::Tensor> originals_;  // reserved: the frame points at its elements
  c10::List<std::optional<at::Tensor>> aliases_;
};

template <>
struct Argument<std::optional<at::Generator>> {
  Argument(Frame& /*frame*/, std::optional<at::Generator> generator, Access /*access*/)
      : generator_(std::move(generator)) {}
  std::optional<at::Generator> get(Frame& frame) {
    return cpuGenerator(generator_, frame.device());
  }
  std::optional<at::Generator> generator_;
};

// What a kernel's result becomes for the caller.
inline at::Tensor giveBack(Frame& frame, at::Tensor&& result) {
  return frame.wrap(std::move(result));
}
inline at::Tensor& giveBack(Frame& frame, at::Tensor& result) {
  return const_cast<at::Tensor&>(frame.original(result));
}
inline const at::Tensor& giveBack(Frame& frame, const at::Tensor& result) {
  return frame.original(result);
}
inline std::vector<at::Tensor> giveBack(Frame& frame, std::vector<at::Tensor>&& results) {
  for (auto& result : results) {
    result = frame.wrap(std::move(result));
  }
  return std::move(results);
}
template <class... Ts>
std::tuple<Ts...> giveBack(Frame& frame, std::tuple<Ts...>&& results) {
  return std::apply(
      [&frame](auto&&... result) {
        return std::tuple<Ts...>(giveBack(frame, std::forward<Ts>(result))...);
      },
      std::move(results));
}
template <class Value>
  requires(std::is_arithmetic_v<Value>)
Value giveBack(Frame& /*frame*/, Value result) {
  return result;
}

// The kernel on neuron of an operator of this signature: a function of CPU tensors, called with
// aliases of the arguments. Operators that share a signature share the code.
template <class Signature>
class ComputedKernel;

template <class Result, class... Args>
class ComputedKernel<Result(Args...)> final : public c10::OperatorKernel {
 public:
  using Compute = Result (*)(c10::DispatchKeySet, Args...);

  ComputedKernel(OpRecord& record, uint64_t written, Compute compute, c10::DispatchKeySet kernel)
      : record_(record), written_(written), compute_(compute), kernel_(kernel) {}

  Result operator()(Args... args) const {
    return run(std::index_sequence_for<Args...>(), std::forward<Args>(args)...);
  }

 private:
  Access access(size_t i) const { return (written_ >> i) & 1 ? Access::kWrite : Access::kRead; }

  template <size_t... I>
  Result run(std::index_sequence<I...> /*indices*/, Args... args) const {
    Frame frame(record_);
    // Braces fix the order of evaluation: left to right, as the schema lists the arguments.
    std::tuple<Argument<Args>...> prepared{
        Argument<Args>(frame, std::forward<Args>(args), access(I))...};
    frame.begin();
    if constexpr (std::is_void_v<Result>) {
      compute_(kernel_, std::get<I>(prepared).get(frame)...);
      frame.finish();
    } else {
      Result result = compute_(kernel_, std::get<I>(prepared).get(frame)...);
      frame.finish();
      if constexpr (std::is_arithmetic_v<Result>) {
        countHostSync(record_.name.c_str(), c10::ScalarType::Undefined);
      }
      return giveBack(frame, std::forward<Result>(result));
    }
  }

  OpRecord& record_;
  uint64_t written_;
  Compute compute_;
  c10::DispatchKeySet kernel_;
};

template <class Op>
using KernelOf = ComputedKernel<typename Op::schema>;

// The kernel of Op on neuron: the CPU's for `kernel` where nothing else is given.
template <class Op>
std::unique_ptr<KernelOf<Op>> kernelOf(typename KernelOf<Op>::Compute compute = &Op::redispatch,
                                       c10::DispatchKeySet kernel = kCpuKernel) {
  constexpr uint64_t kWritten = writtenArguments(Op::schema_str);
  return std::make_unique<KernelOf<Op>>(opRecord(Op::name, Op::overload_name), kWritten, compute,
                                        kernel);
}

// Registers the alias kernel of every operator in the list.
template <class... Ops>
void registerAliasKernels(Registrar& registrar, c10::DispatchKeySet kernel = kCpuKernel) {
  (registrar.impl(Ops::name, Ops::overload_name, kernelOf<Ops>(&Ops::redispatch, kernel)), ...);
}

// A function of ours as a kernel calls it: it needs no dispatch keys.
template <auto compute, class Signature>
struct WithKeys;
template <auto compute, class Result, class... Args>
struct WithKeys<compute, Result(Args...)> {
  static Result call(c10::DispatchKeySet /*keys*/, Args... args) {
    return compute(std::forward<Args>(args)...);
  }
};

// Registers `compute` as what the kernel of Op does with CPU tensors.
template <class Op, auto compute>
void registerComputedKernel(Registrar& registrar) {
  registrar.impl(Op::name, Op::overload_name,
                 kernelOf<Op>(&WithKeys<compute, typename Op::schema>::call));
}

}  // namespace torchneuron
