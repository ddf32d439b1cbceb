// What compiled programs leave to PyTorch's CPU kernels, because those are faster than XLA's:
// products of matrices, dense and sparse, convolutions and attention. Which ones is decided in
// compile/host_calls.py.
#include "programs/host_calls.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu_backward.h>
#include <ATen/ops/_sparse_compressed_tensor_unsafe.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/baddbmm.h>
#include <ATen/ops/bmm.h>
#include <ATen/ops/convolution.h>
#include <ATen/ops/convolution_backward.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/sparse_sampled_addmm.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <array>
#include <exception>

// XLA's headers end functions in a switch over every case.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wreturn-type"
#include <xla/ffi/api/ffi.h>
#pragma GCC diagnostic pop

namespace ffi = xla::ffi;

namespace torchneuron {
namespace {

using Numbers = ffi::Span<const int64_t>;
using Buffer = ffi::AnyBuffer;
using Output = ffi::Result<ffi::AnyBuffer>;

// XLA may call from any thread, and whatever modes the caller's thread is in are not meant for
// these tensors: only their CPU kernels are.
class PlainDispatch {
 public:
  PlainDispatch()
      : guard_(c10::default_included_set - c10::autograd_dispatch_keyset_with_ADInplaceOrView,
               c10::default_excluded_set | c10::autograd_dispatch_keyset_with_ADInplaceOrView) {}

 private:
  c10::impl::ForceDispatchKeyGuard guard_;
};

at::IntArrayRef listOf(Numbers numbers) {
  return {numbers.begin(), numbers.size()};
}

at::ScalarType scalarTypeOf(ffi::DataType dtype) {
  switch (dtype) {
    case ffi::DataType::F32:
      return at::kFloat;
    case ffi::DataType::F64:
      return at::kDouble;
    case ffi::DataType::BF16:
      return at::kBFloat16;
    case ffi::DataType::F16:
      return at::kHalf;
    case ffi::DataType::S32:
      return at::kInt;
    case ffi::DataType::S64:
      return at::kLong;
    default:
      TORCH_CHECK(false, "a host call got a buffer of XLA's type ", static_cast<int>(dtype));
  }
}

at::Tensor tensorOf(const Buffer& buffer) {
  const auto sizes = buffer.dimensions();
  return at::from_blob(buffer.untyped_data(), at::IntArrayRef(sizes.begin(), sizes.size()),
                       at::TensorOptions(scalarTypeOf(buffer.element_type())));
}

template <class Body>
ffi::Error guarded(const Body& body) {
  try {
    const PlainDispatch dispatch;
    body();
    return ffi::Error::Success();
  } catch (const std::exception& error) {
    return ffi::Error::Internal(error.what());
  }
}

// Reorders the dimensions to (batch, rows, columns), each of which may stand for several or none.
at::Tensor matricesOf(const Buffer& buffer, Numbers order, at::IntArrayRef sizes) {
  return tensorOf(buffer).permute(listOf(order)).reshape(sizes);
}

// left (B, M, K) times right (B, K, N), without B where `sizes` = [B, M, K, N] says 0 for it
struct Factors {
  Factors(const Buffer& left_buffer, const Buffer& right_buffer, Output output, Numbers left_order,
          Numbers right_order, Numbers sizes)
      : out(tensorOf(*output)) {
    const auto [batch, rows, inner, columns] = std::array{sizes[0], sizes[1], sizes[2], sizes[3]};
    const bool is_batched = batch > 0;
    at::DimVector prefix(is_batched ? 1 : 0, batch);
    const auto shape = [&](int64_t first, int64_t second) {
      at::DimVector made(prefix);
      made.append({first, second});
      return made;
    };
    left = matricesOf(left_buffer, left_order, shape(rows, inner));
    right = matricesOf(right_buffer, right_order, shape(inner, columns));
    out = out.view(shape(rows, columns));
  }

  at::Tensor left, right, out;
};

// The third argument, where there is one, is added; it broadcasts to the output.
ffi::Error product(ffi::RemainingArgs args, Output out, Numbers left_order, Numbers right_order,
                   Numbers sizes) {
  return guarded([&]() {
    Factors factors(args.get<Buffer>(0).value(), args.get<Buffer>(1).value(), out, left_order,
                    right_order, sizes);
    const auto& [left, right, made] = std::tie(factors.left, factors.right, factors.out);
    const bool is_batched = left.dim() == 3;
    if (args.size() == 2) {
      is_batched ? at::bmm_out(made, left, right) : at::mm_out(made, left, right);
      return;
    }
    const auto plus = tensorOf(args.get<Buffer>(2).value()).expand(made.sizes());
    is_batched ? at::baddbmm_out(made, plus, left, right) : at::addmm_out(made, plus, left, right);
  });
}

ffi::Error convolution(ffi::RemainingArgs args, Output out, Numbers stride, Numbers padding,
                       Numbers dilation, Numbers output_padding, int64_t groups, bool transposed) {
  return guarded([&]() {
    const auto input = tensorOf(args.get<Buffer>(0).value());
    const auto weight = tensorOf(args.get<Buffer>(1).value());
    std::optional<at::Tensor> bias;
    if (args.size() > 2) {
      bias = tensorOf(args.get<Buffer>(2).value());
    }
    tensorOf(*out).copy_(at::convolution(input, weight, bias, listOf(stride), listOf(padding),
                                         listOf(dilation), transposed, listOf(output_padding),
                                         groups));
  });
}

// The outputs are the gradients that `mask` asks for, of input, weight and bias in this order.
ffi::Error convolutionBackward(Buffer gradient, Buffer input, Buffer weight,
                               ffi::RemainingRets outs, Numbers stride, Numbers padding,
                               Numbers dilation, Numbers output_padding, Numbers mask,
                               int64_t groups, bool transposed) {
  return guarded([&]() {
    const auto grad = tensorOf(gradient);
    const std::array<bool, 3> wanted{mask[0] != 0, mask[1] != 0, mask[2] != 0};
    const std::array<int64_t, 1> bias_sizes{grad.size(1)};
    const auto made = at::convolution_backward(
        grad, tensorOf(input), tensorOf(weight), at::IntArrayRef(bias_sizes), listOf(stride),
        listOf(padding), listOf(dilation), transposed, listOf(output_padding), groups, wanted);
    const std::array<at::Tensor, 3> gradients{std::get<0>(made), std::get<1>(made),
                                              std::get<2>(made)};
    size_t place = 0;
    for (const auto index : c10::irange(gradients.size())) {
      if (wanted[index]) {
        tensorOf(*outs.get<Buffer>(place++).value()).copy_(gradients[index]);
      }
    }
  });
}

// (batch, length, heads, size), as models project them, to the kernel's (batch, heads, length,
// size)
at::Tensor headsOf(const Buffer& buffer) {
  return tensorOf(buffer).transpose(1, 2);
}

std::optional<at::Tensor> maskOf(const ffi::RemainingArgs& args, size_t place) {
  if (args.size() <= place) {
    return std::nullopt;
  }
  return tensorOf(args.get<Buffer>(place).value());
}

ffi::Error attention(ffi::RemainingArgs args, Output out, Output logsumexp, bool causal,
                     double scale) {
  return guarded([&]() {
    std::array<at::Tensor, 3> parts;
    for (const auto place : c10::irange(parts.size())) {
      parts[place] = headsOf(args.get<Buffer>(place).value());
    }
    const auto made = at::_scaled_dot_product_flash_attention_for_cpu(
        parts[0], parts[1], parts[2], /*dropout_p=*/0.0, causal, maskOf(args, parts.size()), scale);
    headsOf(*out).copy_(std::get<0>(made));
    tensorOf(*logsumexp).copy_(std::get<1>(made));
  });
}

ffi::Error attentionBackward(ffi::RemainingArgs args, Output of_query, Output of_key,
                             Output of_value, bool causal, double scale) {
  return guarded([&]() {
    std::array<at::Tensor, 5> parts;  // gradient, query, key, value, output
    for (const auto place : c10::irange(parts.size())) {
      parts[place] = headsOf(args.get<Buffer>(place).value());
    }
    const auto logsumexp = tensorOf(args.get<Buffer>(parts.size()).value());
    const auto made = at::_scaled_dot_product_flash_attention_for_cpu_backward(
        parts[0], parts[1], parts[2], parts[3], parts[4], logsumexp, /*dropout_p=*/0.0, causal,
        maskOf(args, parts.size() + 1), scale);
    headsOf(*of_query).copy_(std::get<0>(made));
    headsOf(*of_key).copy_(std::get<1>(made));
    headsOf(*of_value).copy_(std::get<2>(made));
  });
}

// The members of a sparse matrix; entries behind the last row's end are only room.
at::Tensor sparseOf(const Buffer& compressed, const Buffer& plain, const at::Tensor& values,
                    at::IntArrayRef sizes, c10::Layout layout) {
  const auto ends = tensorOf(compressed);
  const auto used = ends.select(0, -1).item<int64_t>();
  return at::_sparse_compressed_tensor_unsafe(
      ends, tensorOf(plain).narrow(0, 0, used), values.narrow(0, 0, used), sizes,
      at::TensorOptions(values.scalar_type()).layout(layout));
}

// The matrix (rows compressed), or its transpose, times a dense one.
ffi::Error csrProduct(Buffer compressed, Buffer plain, Buffer values, Buffer dense, Output out,
                      bool transposed) {
  return guarded([&]() {
    const auto factor = tensorOf(dense);
    auto made = tensorOf(*out);
    const auto matrix =
        sparseOf(compressed, plain, tensorOf(values), {made.size(0), factor.size(0)},
                 transposed ? c10::kSparseCsc : c10::kSparseCsr);
    at::addmm_out(made, made, matrix, factor, /*beta=*/0);
  });
}

// left times the transpose of right, where the matrix has entries
ffi::Error csrSampled(Buffer compressed, Buffer plain, Buffer left, Buffer right, Output out) {
  return guarded([&]() {
    const auto rows = tensorOf(left);
    const auto columns = tensorOf(right);
    auto made = tensorOf(*out).zero_();
    const auto places =
        sparseOf(compressed, plain, made, {rows.size(0), columns.size(0)}, c10::kSparseCsr);
    const auto found = at::sparse_sampled_addmm(places, rows, columns.t(), /*beta=*/0).values();
    made.narrow(0, 0, found.size(0)).copy_(found);
  });
}

XLA_FFI_DEFINE_HANDLER(
    kAttention, attention,
    ffi::Ffi::Bind().RemainingArgs().Ret<Buffer>().Ret<Buffer>().Attr<bool>("causal").Attr<double>(
        "scale"));
XLA_FFI_DEFINE_HANDLER(kAttentionBackward, attentionBackward,
                       ffi::Ffi::Bind()
                           .RemainingArgs()
                           .Ret<Buffer>()
                           .Ret<Buffer>()
                           .Ret<Buffer>()
                           .Attr<bool>("causal")
                           .Attr<double>("scale"));
XLA_FFI_DEFINE_HANDLER(kProduct, product,
                       ffi::Ffi::Bind()
                           .RemainingArgs()
                           .Ret<Buffer>()
                           .Attr<Numbers>("left_order")
                           .Attr<Numbers>("right_order")
                           .Attr<Numbers>("sizes"));
XLA_FFI_DEFINE_HANDLER(kConvolution, convolution,
                       ffi::Ffi::Bind()
                           .RemainingArgs()
                           .Ret<Buffer>()
                           .Attr<Numbers>("stride")
                           .Attr<Numbers>("padding")
                           .Attr<Numbers>("dilation")
                           .Attr<Numbers>("output_padding")
                           .Attr<int64_t>("groups")
                           .Attr<bool>("transposed"));
XLA_FFI_DEFINE_HANDLER(kConvolutionBackward, convolutionBackward,
                       ffi::Ffi::Bind()
                           .Arg<Buffer>()
                           .Arg<Buffer>()
                           .Arg<Buffer>()
                           .RemainingRets()
                           .Attr<Numbers>("stride")
                           .Attr<Numbers>("padding")
                           .Attr<Numbers>("dilation")
                           .Attr<Numbers>("output_padding")
                           .Attr<Numbers>("mask")
                           .Attr<int64_t>("groups")
                           .Attr<bool>("transposed"));
XLA_FFI_DEFINE_HANDLER(kCsrProduct, csrProduct,
                       ffi::Ffi::Bind()
                           .Arg<Buffer>()
                           .Arg<Buffer>()
                           .Arg<Buffer>()
                           .Arg<Buffer>()
                           .Ret<Buffer>()
                           .Attr<bool>("transposed"));
XLA_FFI_DEFINE_HANDLER(
    kCsrSampled, csrSampled,
    ffi::Ffi::Bind().Arg<Buffer>().Arg<Buffer>().Arg<Buffer>().Arg<Buffer>().Ret<Buffer>());

}  // namespace

std::vector<std::pair<const char*, void*>> hostCalls() {
  return {
      {"torchneuron.product", reinterpret_cast<void*>(kProduct)},
      {"torchneuron.convolution", reinterpret_cast<void*>(kConvolution)},
      {"torchneuron.convolution_backward", reinterpret_cast<void*>(kConvolutionBackward)},
      {"torchneuron.attention", reinterpret_cast<void*>(kAttention)},
      {"torchneuron.attention_backward", reinterpret_cast<void*>(kAttentionBackward)},
      {"torchneuron.csr_product", reinterpret_cast<void*>(kCsrProduct)},
      {"torchneuron.csr_sampled", reinterpret_cast<void*>(kCsrSampled)},
  };
}

}  // namespace torchneuron
