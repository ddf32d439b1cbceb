#include "core/storage.h"

#include "core/allocator.h"
#include "core/block.h"
#include "core/residency.h"

#include <algorithm>
#include <cstring>

namespace torchneuron {

void resizeStorage(c10::StorageImpl* storage, size_t nbytes) {
  TORCH_CHECK(storage->resizable(), "Trying to resize storage that is not resizable");
  auto data = neuronAllocator()->allocateOn(nbytes, storage->device().index());
  const auto kept_bytes = std::min(nbytes, storage->nbytes());
  if (kept_bytes > 0) {
    const auto& old = storage->data_ptr();
    if (old.get_deleter() == &deleteDeviceMemory) {
      hostAccess(blockOf(old.get()), Access::kRead);
    }
    std::memcpy(data.get(), old.get(), kept_bytes);
  }
  storage->set_data_ptr_noswap(std::move(data));
  storage->set_nbytes(nbytes);
}

}  // namespace torchneuron
