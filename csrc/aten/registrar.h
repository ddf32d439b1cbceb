// Registers kernels of aten under one dispatch key.
//
// torch::Library would infer a schema for each kernel only to compare it with the one that aten
// has declared already; for a thousand kernels that is most of the time that loading takes.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

#include <memory>
#include <utility>

namespace torchneuron {

class Registrar {
 public:
  explicit Registrar(c10::DispatchKey key) : key_(key) {}

  void impl(const char* name, const char* overload, c10::KernelFunction kernel) {
    impl({name, overload}, std::move(kernel));
  }
  void impl(c10::OperatorName name, c10::KernelFunction kernel);
  // The kernel `function`, given as a compile-time pointer.
  template <auto function>
  void impl(const char* name, const char* overload = "") {
    impl(name, overload, c10::KernelFunction::makeFromUnboxedFunction(TORCH_FN(function)));
  }
  // The kernel that `functor` is.
  template <class Functor>
  void impl(const char* name, const char* overload, std::unique_ptr<Functor> functor) {
    impl(name, overload,
         c10::KernelFunction::makeFromUnboxedFunctor<false, Functor>(std::move(functor)));
  }
  // For operators that have no kernel under this key, of any library.
  void fallback(c10::KernelFunction kernel);
  bool has(const c10::OperatorHandle& op) const { return op.hasKernelForDispatchKey(key_); }

 private:
  c10::DispatchKey key_;
};

}  // namespace torchneuron
