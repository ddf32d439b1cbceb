// Random numbers: each neuron generator drives a CPU generator, so that the same seed gives the
// numbers the CPU gives.
#pragma once

#include <ATen/core/Generator.h>
#include <c10/core/GeneratorImpl.h>

namespace torchneuron {

class NeuronGenerator final : public c10::GeneratorImpl {
 public:
  NeuronGenerator(c10::DeviceIndex device, at::Generator cpu);

  void set_current_seed(uint64_t seed) override;
  uint64_t current_seed() const override;
  uint64_t seed() override;
  void set_offset(uint64_t offset) override;
  uint64_t get_offset() const override;
  void set_state(const c10::TensorImpl& state) override;
  c10::intrusive_ptr<c10::TensorImpl> get_state() const override;
  // Both share the underlying state, as graph capture wants, instead of copying it.
  void graphsafe_set_state(const c10::intrusive_ptr<c10::GeneratorImpl>& state) override;
  c10::intrusive_ptr<c10::GeneratorImpl> graphsafe_get_state() const override;

  static c10::DeviceType device_type() { return c10::kPrivateUse1; }
  // What a CPU kernel draws from.
  const at::Generator& cpu() const { return cpu_; }

 private:
  NeuronGenerator* clone_impl() const override;

  at::Generator cpu_;
};

at::Generator makeGenerator(c10::DeviceIndex device);
const at::Generator& defaultGenerator(c10::DeviceIndex device);
// Seeds the default generator of every device; does not configure the device.
void seedAllGenerators(uint64_t seed);
// The CPU generator behind `generator`, or behind the default of `device` where there is none.
at::Generator cpuGenerator(const std::optional<at::Generator>& generator, c10::DeviceIndex device);

}  // namespace torchneuron
