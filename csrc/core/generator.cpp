#include "core/generator.h"

#include "core/device.h"
#include "core/fork.h"

#include <ATen/CPUGeneratorImpl.h>

#include <array>
#include <limits>
#include <mutex>

namespace torchneuron {
namespace {

struct Defaults {
  std::mutex mutex;
  uint64_t seed = c10::default_rng_seed_val;
  std::array<at::Generator, std::numeric_limits<c10::DeviceIndex>::max()> generators;
};

Defaults& defaults() {
  static auto* instance = new Defaults;  // leaked: threads may draw during exit
  return *instance;
}

std::mutex& defaultsMutex() {
  return defaults().mutex;
}

[[maybe_unused]] const bool g_held = holdAcrossForks<&defaultsMutex>();

at::Generator wrap(c10::DeviceIndex device, at::Generator cpu) {
  return at::make_generator<NeuronGenerator>(device, std::move(cpu));
}

}  // namespace

NeuronGenerator::NeuronGenerator(c10::DeviceIndex device, at::Generator cpu)
    : GeneratorImpl(c10::Device(c10::kPrivateUse1, device),
                    c10::DispatchKeySet(c10::DispatchKey::PrivateUse1)),
      cpu_(std::move(cpu)) {}

void NeuronGenerator::set_current_seed(uint64_t seed) {
  cpu_.set_current_seed(seed);
}
uint64_t NeuronGenerator::current_seed() const {
  return cpu_.current_seed();
}
uint64_t NeuronGenerator::seed() {
  return cpu_.seed();
}

// The state is a Mersenne Twister's, which has no offset. PyTorch pickles every generator but the
// CPU's as seed, offset and state, so zero must be readable and settable.
void NeuronGenerator::set_offset(uint64_t offset) {
  TORCH_CHECK(offset == 0, "a neuron generator has no offset to set to ", offset,
              "\n\nhint: keep and restore its state with get_state() and set_state()");
}
uint64_t NeuronGenerator::get_offset() const {
  return 0;
}

void NeuronGenerator::set_state(const c10::TensorImpl& state) {
  cpu_.unsafeGetGeneratorImpl()->set_state(state);
}
c10::intrusive_ptr<c10::TensorImpl> NeuronGenerator::get_state() const {
  return cpu_.unsafeGetGeneratorImpl()->get_state();
}

void NeuronGenerator::graphsafe_set_state(const c10::intrusive_ptr<c10::GeneratorImpl>& state) {
  auto* other = dynamic_cast<NeuronGenerator*>(state.get());
  TORCH_CHECK(other != nullptr,
              "graphsafe_set_state wants the state of a neuron generator, got one of ",
              state->device(), "\n\nhint: take it with generator.graphsafe_get_state()");
  cpu_ = other->cpu_;
}
c10::intrusive_ptr<c10::GeneratorImpl> NeuronGenerator::graphsafe_get_state() const {
  return c10::make_intrusive<NeuronGenerator>(device().index(), cpu_);
}

NeuronGenerator* NeuronGenerator::clone_impl() const {
  return new NeuronGenerator(device().index(), cpu_.clone());
}

at::Generator makeGenerator(c10::DeviceIndex device) {
  return wrap(device, at::detail::createCPUGenerator());
}

const at::Generator& defaultGenerator(c10::DeviceIndex device) {
  checkDevice(device);
  auto& all = defaults();
  std::lock_guard<std::mutex> lock(all.mutex);
  auto& generator = all.generators[device];
  if (!generator.defined()) {
    generator = wrap(device, at::detail::createCPUGenerator(all.seed));
  }
  return generator;
}

void seedAllGenerators(uint64_t seed) {
  auto& all = defaults();
  std::lock_guard<std::mutex> lock(all.mutex);
  all.seed = seed;
  for (auto& generator : all.generators) {
    if (generator.defined()) {
      std::lock_guard<std::mutex> generator_lock(generator.mutex());
      generator.set_current_seed(seed);
    }
  }
}

at::Generator cpuGenerator(const std::optional<at::Generator>& generator, c10::DeviceIndex device) {
  const auto& chosen =
      generator.has_value() && generator->defined() ? *generator : defaultGenerator(device);
  auto* neuron = dynamic_cast<NeuronGenerator*>(chosen.unsafeGetGeneratorImpl());
  TORCH_CHECK(neuron != nullptr, "Expected a 'neuron' device type for generator but found '",
              chosen.device(), "'\n\nhint: make it with torch.Generator(device=\"neuron\")");
  return neuron->cpu();
}

}  // namespace torchneuron
