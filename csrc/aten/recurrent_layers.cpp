// LSTM, GRU and RNN layers, and single cells. PyTorch multiplies the inputs of all time steps at
// once on the CPU (or hands the layer to oneDNN) and goes step by step elsewhere, and adds a cell's
// bias within the product or after it; here the CPU's way is taken.
#include "aten/bridge.h"
#include "aten/kernels.h"
#include "aten/registrar.h"
#include "core/context.h"
#include "core/generator.h"
#include "core/trace.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/gru.h>
#include <ATen/ops/gru_cell_native.h>
#include <ATen/ops/gru_native.h>
#include <ATen/ops/gru_ops.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/lstm.h>
#include <ATen/ops/lstm_cell_native.h>
#include <ATen/ops/lstm_native.h>
#include <ATen/ops/lstm_ops.h>
#include <ATen/ops/rnn_relu.h>
#include <ATen/ops/rnn_relu_native.h>
#include <ATen/ops/rnn_relu_ops.h>
#include <ATen/ops/rnn_tanh.h>
#include <ATen/ops/rnn_tanh_native.h>
#include <ATen/ops/rnn_tanh_ops.h>

namespace torchneuron {
namespace {

using One = const at::Tensor&;
using Many = at::TensorList;

// Allocations of the CPU composite come from the device.
class HostScope {
 public:
  explicit HostScope(c10::DeviceIndex device) : outer_(kernelDevice) { kernelDevice = device; }
  ~HostScope() { kernelDevice = outer_; }
  HostScope(const HostScope&) = delete;
  HostScope& operator=(const HostScope&) = delete;

 private:
  c10::DeviceIndex outer_;
};

void collect(std::vector<at::Tensor>& all, const at::Tensor& tensor) {
  all.push_back(tensor);
}
void collect(std::vector<at::Tensor>& all, at::TensorList tensors) {
  all.insert(all.end(), tensors.begin(), tensors.end());
}

at::Tensor host(const at::Tensor& tensor) {
  return crossToHost(tensor);
}
std::vector<at::Tensor> host(at::TensorList tensors) {
  std::vector<at::Tensor> crossed;
  crossed.reserve(tensors.size());
  for (const auto& tensor : tensors) {
    crossed.push_back(crossToHost(tensor));
  }
  return crossed;
}

template <class... Results>
std::tuple<Results...> device(std::tuple<Results...>&& results, c10::DeviceIndex index) {
  return std::apply(
      [index](const Results&... each) {
        return std::tuple<Results...>(crossToDevice(each, index)...);
      },
      results);
}

// Dropout between layers draws from the CPU's default generator, and must draw from the device's:
// while this lives, the one stands where the other was. Other threads that draw on the CPU
// meanwhile draw from the device's stream.
class GeneratorLoan {
 public:
  GeneratorLoan(bool needed, c10::DeviceIndex device) : needed_(needed) {
    if (needed_) {
      device_ = cpuGenerator(std::nullopt, device);
      cpu_state_ = cpu_.get_state();
      cpu_.set_state(device_.get_state());
    }
  }
  ~GeneratorLoan() {
    if (needed_) {
      device_.set_state(cpu_.get_state());
      cpu_.set_state(cpu_state_);
    }
  }
  GeneratorLoan(const GeneratorLoan&) = delete;
  GeneratorLoan& operator=(const GeneratorLoan&) = delete;

 private:
  bool needed_;
  at::Generator cpu_ = at::detail::getDefaultCPUGenerator();
  at::Generator device_;
  at::Tensor cpu_state_;
};

bool drawsInside(int64_t num_layers, double dropout, bool train) {
  return train && dropout > 0 && num_layers > 1;
}

template <class Op, auto composite, class State>
auto paddedLayer(const at::Tensor& input, State state, at::TensorList params, bool has_biases,
                 int64_t num_layers, double dropout, bool train, bool bidirectional,
                 bool batch_first) {
  static OpRecord& record = opRecord(Op::name, Op::overload_name);
  std::vector<at::Tensor> all;
  collect(all, input);
  collect(all, state);
  collect(all, params);
  const auto index = bridgeDevice(all);
  if (index < 0) {
    return composite(input, state, params, has_biases, num_layers, dropout, train, bidirectional,
                     batch_first);
  }
  for (const auto& tensor : all) {
    checkRefused(record, tensor.scalar_type());
  }
  countExecuted(record, input.scalar_type());
  const GeneratorLoan loan(drawsInside(num_layers, dropout, train), index);
  const HostScope scope(index);
  return device(Op::call(host(input), host(state), host(params), has_biases, num_layers, dropout,
                         train, bidirectional, batch_first),
                index);
}

template <class Op, auto composite, class State>
auto packedLayer(const at::Tensor& data, const at::Tensor& batch_sizes, State state,
                 at::TensorList params, bool has_biases, int64_t num_layers, double dropout,
                 bool train, bool bidirectional) {
  static OpRecord& record = opRecord(Op::name, Op::overload_name);
  std::vector<at::Tensor> all;
  collect(all, data);
  collect(all, state);
  collect(all, params);
  const auto index = bridgeDevice(all);
  if (index < 0 || !batch_sizes.is_cpu()) {
    return composite(data, batch_sizes, state, params, has_biases, num_layers, dropout, train,
                     bidirectional);
  }
  for (const auto& tensor : all) {
    checkRefused(record, tensor.scalar_type());
  }
  countExecuted(record, data.scalar_type());
  const GeneratorLoan loan(drawsInside(num_layers, dropout, train), index);
  const HostScope scope(index);
  return device(Op::call(host(data), batch_sizes, host(state), host(params), has_biases, num_layers,
                         dropout, train, bidirectional),
                index);
}

using Bias = std::optional<at::Tensor>;

bool isOnDevice(One input, Many state, One input_weight, One hidden_weight) {
  std::vector<at::Tensor> all{input, input_weight, hidden_weight};
  collect(all, state);
  return bridgeDevice(all) >= 0;
}

// The CPU's steps, on neuron tensors.
std::tuple<at::Tensor, at::Tensor> lstmCell(One input, Many state, One input_weight,
                                            One hidden_weight, const Bias& input_bias,
                                            const Bias& hidden_bias) {
  if (!isOnDevice(input, state, input_weight, hidden_weight)) {
    return at::native::lstm_cell(input, state, input_weight, hidden_weight, input_bias,
                                 hidden_bias);
  }
  const auto gates = at::linear(state[0], hidden_weight, hidden_bias)
                         .add_(at::linear(input, input_weight, input_bias));
  const auto chunks = gates.unsafe_chunk(4, 1);
  const auto in = chunks[0].sigmoid_();
  const auto forget = chunks[1].sigmoid_();
  const auto fresh = chunks[2].tanh_();
  const auto out = chunks[3].sigmoid_();
  auto cell = (forget * state[1]).add_(in * fresh);
  auto hidden = out * cell.tanh();
  return {std::move(hidden), std::move(cell)};
}

at::Tensor gruCell(One input, One state, One input_weight, One hidden_weight,
                   const Bias& input_bias, const Bias& hidden_bias) {
  if (!isOnDevice(input, state, input_weight, hidden_weight)) {
    return at::native::gru_cell(input, state, input_weight, hidden_weight, input_bias, hidden_bias);
  }
  const auto inputs = at::linear(input, input_weight, input_bias).unsafe_chunk(3, 1);
  const auto hiddens = at::linear(state, hidden_weight, hidden_bias).unsafe_chunk(3, 1);
  const auto reset = hiddens[0].add_(inputs[0]).sigmoid_();
  const auto update = hiddens[1].add_(inputs[1]).sigmoid_();
  const auto fresh = inputs[2].add(hiddens[2].mul_(reset)).tanh_();
  return (state - fresh).mul_(update).add_(fresh);
}

template <class Results, class State>
using Padded = Results (*)(One, State, Many, bool, int64_t, double, bool, bool, bool);
template <class Results, class State>
using Packed = Results (*)(One, One, State, Many, bool, int64_t, double, bool, bool);
using Two = std::tuple<at::Tensor, at::Tensor>;
using Three = std::tuple<at::Tensor, at::Tensor, at::Tensor>;

}  // namespace

void registerRecurrentLayers(Registrar& registrar) {
  namespace ops = at::_ops;
  namespace native = at::native;
  constexpr Padded<Three, Many> kLstm = &native::lstm;
  constexpr Packed<Three, Many> kPackedLstm = &native::lstm;
  constexpr Padded<Two, One> kGru = &native::gru;
  constexpr Packed<Two, One> kPackedGru = &native::gru;
  constexpr Padded<Two, One> kTanh = &native::rnn_tanh;
  constexpr Packed<Two, One> kPackedTanh = &native::rnn_tanh;
  constexpr Padded<Two, One> kRelu = &native::rnn_relu;
  constexpr Packed<Two, One> kPackedRelu = &native::rnn_relu;
  registrar.impl<&paddedLayer<ops::lstm_input, kLstm, Many>>("aten::lstm", "input");
  registrar.impl<&packedLayer<ops::lstm_data, kPackedLstm, Many>>("aten::lstm", "data");
  registrar.impl<&paddedLayer<ops::gru_input, kGru, One>>("aten::gru", "input");
  registrar.impl<&packedLayer<ops::gru_data, kPackedGru, One>>("aten::gru", "data");
  registrar.impl<&paddedLayer<ops::rnn_tanh_input, kTanh, One>>("aten::rnn_tanh", "input");
  registrar.impl<&packedLayer<ops::rnn_tanh_data, kPackedTanh, One>>("aten::rnn_tanh", "data");
  registrar.impl<&paddedLayer<ops::rnn_relu_input, kRelu, One>>("aten::rnn_relu", "input");
  registrar.impl<&packedLayer<ops::rnn_relu_data, kPackedRelu, One>>("aten::rnn_relu", "data");
  registrar.impl<&lstmCell>("aten::lstm_cell");
  registrar.impl<&gruCell>("aten::gru_cell");
}

}  // namespace torchneuron
