#include "python/callbacks.h"

#include "aten/lowered.h"
#include "core/device.h"
#include "core/op_record.h"
#include "core/trace.h"

#include <torch/csrc/Dtype.h>
#include <torch/csrc/DynamicTypes.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/python_headers.h>
#include <torch/csrc/utils/pybind.h>

#include <unordered_map>

namespace py = pybind11;

// Of torch/csrc/jit/python/pybind_utils.h, which takes the compiler longer to read than this file.
namespace torch::jit {
TORCH_PYTHON_API c10::IValue toIValue(py::handle object, const c10::TypePtr& type,
                                      std::optional<int32_t> length);
TORCH_PYTHON_API py::object toPyObject(c10::IValue value);
}  // namespace torch::jit

namespace torchneuron {
namespace {

// Leaked: they are called until the process ends. Guarded by the interpreter lock.
py::object& configureCallback() {
  static auto* callback = new py::object;
  return *callback;
}
py::object& refusalCallback() {
  static auto* callback = new py::object;
  return *callback;
}
py::object& sparseCallback() {
  static auto* callback = new py::object;
  return *callback;
}
py::object& runCallback() {
  static auto* callback = new py::object;
  return *callback;
}

}  // namespace

void throwPythonError(py::error_already_set& error) {
  error.restore();
  python_error carrier;
  carrier.persist();
  throw std::move(carrier);
}

namespace {

// The interpreter lock orders callers; the callback may be run twice by two threads, which does
// no harm because the first publication wins.
void resolve() {
  py::gil_scoped_acquire lock;
  if (isConfigured()) {
    return;
  }
  try {
    const auto result = configureCallback()().cast<std::tuple<int, size_t, std::string>>();
    publishConfiguration({static_cast<c10::DeviceIndex>(std::get<0>(result)), std::get<1>(result),
                          std::get<2>(result)});
  } catch (py::error_already_set& error) {
    throwPythonError(error);
  }
}

bool tryResolve() noexcept {
  if (Py_IsInitialized() == 0) {
    return false;
  }
  py::gil_scoped_acquire lock;
  py::error_scope keep;  // the caller may be handling an error of its own
  try {
    resolve();
    return true;
  } catch (...) {
    PyErr_Clear();
    return false;
  }
}

// Whether a code object belongs to the user, decided once per file.
class UserFiles {
 public:
  bool contains(const std::string& file) {
    const auto found = verdicts_.find(file);
    if (found != verdicts_.end()) {
      return found->second;
    }
    return verdicts_[file] = decide(file);
  }
  void setLibraryPrefixes(std::vector<std::string> prefixes) {
    prefixes_ = std::move(prefixes);
    verdicts_.clear();
  }

 private:
  bool decide(const std::string& file) const {
    if (file.empty() || file[0] == '<') {
      // "<stdin>" and "<string>" are the user's; "<frozen ...>" is Python's, the other torch.fx's.
      return file.rfind("<frozen", 0) != 0 && file.rfind("<eval_with_key>", 0) != 0;
    }
    for (const auto& prefix : prefixes_) {
      if (file.rfind(prefix, 0) == 0) {
        return false;
      }
    }
    return true;
  }
  std::vector<std::string> prefixes_;
  std::unordered_map<std::string, bool> verdicts_;
};

UserFiles& userFiles() {
  static auto* files = new UserFiles;
  return *files;
}

// Kernels run without the interpreter lock.
SourceLine findUserFrame() {
  if (Py_IsInitialized() == 0) {
    return {};
  }
  py::gil_scoped_acquire lock;
  PyFrameObject* frame = PyEval_GetFrame();
  Py_XINCREF(frame);
  SourceLine where;
  while (frame != nullptr) {
    PyCodeObject* code = PyFrame_GetCode(frame);
    const char* name = PyUnicode_AsUTF8(code->co_filename);
    std::string file = name == nullptr ? "" : name;
    Py_DECREF(code);
    if (userFiles().contains(file)) {
      where = {std::move(file), PyFrame_GetLineNumber(frame)};
      Py_DECREF(frame);
      break;
    }
    PyFrameObject* back = PyFrame_GetBack(frame);
    Py_DECREF(frame);
    frame = back;
  }
  return where;
}

void onRefusal(const OpRecord& op, c10::ScalarType dtype) {
  py::gil_scoped_acquire lock;
  if (!refusalCallback()) {
    return;
  }
  try {
    const auto handler = refusalCallback();  // keep it: the handler may replace itself
    handler(op.name, py::reinterpret_borrow<py::object>(
                         reinterpret_cast<PyObject*>(torch::getTHPDtype(dtype))));
  } catch (py::error_already_set& error) {
    throwPythonError(error);
  }
}

void onSparse(const OpRecord& op, c10::Layout layout) {
  py::gil_scoped_acquire lock;
  const auto handler = sparseCallback();  // keep it: the handler may replace itself
  if (!handler || handler.is_none()) {
    return;
  }
  try {
    handler(op.name, py::reinterpret_borrow<py::object>(
                         reinterpret_cast<PyObject*>(torch::getTHPLayout(layout))));
  } catch (py::error_already_set& error) {
    throwPythonError(error);
  }
}

void setRefusedRows(const std::vector<std::pair<std::string, std::vector<py::object>>>& rows,
                    py::object handler) {
  RefusedRows converted;
  for (const auto& [op, dtypes] : rows) {
    auto& row = converted.emplace_back(op, std::vector<c10::ScalarType>());
    for (const auto& dtype : dtypes) {
      if (!THPDtype_Check(dtype.ptr())) {
        throw py::type_error("set_refused wants torch dtypes");
      }
      row.second.push_back(reinterpret_cast<THPDtype*>(dtype.ptr())->scalar_type);
    }
  }
  refusalCallback() = std::move(handler);
  setRefused(converted, &onRefusal);
}

void setRefusedSparse(py::object handler) {
  const bool asks = !handler.is_none();
  sparseCallback() = std::move(handler);
  sparseRefusal = asks ? &onSparse : nullptr;
}

std::optional<torch::jit::Stack> runLowered(const OpRecord& op, const c10::FunctionSchema& schema,
                                            at::ArrayRef<c10::IValue> arguments) {
  py::gil_scoped_acquire lock;
  try {
    py::list given;
    for (const auto& argument : arguments) {
      given.append(torch::jit::toPyObject(argument));
    }
    const py::object made = runCallback()(op.name, given);
    if (made.is_none()) {
      return std::nullopt;
    }
    torch::jit::Stack results;
    size_t place = 0;
    for (const auto& each : py::reinterpret_borrow<py::list>(made)) {
      results.push_back(torch::jit::toIValue(each, schema.returns()[place++].type(), std::nullopt));
    }
    return results;
  } catch (py::error_already_set& error) {
    throwPythonError(error);
  }
}

}  // namespace

void bindCallbacks(py::module_& module) {
  module.def(
      "set_configure",
      [](py::object callback) {
        configureCallback() = std::move(callback);
        setConfigurator({&resolve, &tryResolve});
      },
      py::arg("callback"));
  module.def("set_refused", &setRefusedRows, py::arg("rows"), py::arg("handler"));
  module.def("set_refused_sparse", &setRefusedSparse, py::arg("handler"));
  module.def(
      "set_library_prefixes",
      [](std::vector<std::string> prefixes) {
        userFiles().setLibraryPrefixes(std::move(prefixes));
        setFrameFinder(&findUserFrame);
      },
      py::arg("prefixes"));
  module.def(
      "set_lowered",
      [](py::object run) {
        runCallback() = std::move(run);
        setLoweredRunner(&runLowered);
      },
      py::arg("run"));
  module.def("user_frame", []() -> std::optional<std::pair<std::string, int>> {
    const auto where = findUserFrame();
    if (where.file.empty()) {
      return std::nullopt;
    }
    return std::pair(where.file, where.line);
  });
}

}  // namespace torchneuron
