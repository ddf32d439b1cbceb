// The large half of a pool: best fit, split and merged with physical neighbours.
#include "core/pool.h"
#include "core/pool_parts.h"

namespace torchneuron {
namespace {

constexpr size_t kMiB = size_t{1} << 20;
constexpr size_t kSegmentUnit = 2 * kMiB;
// Requests up to the first figure share segments of the second; larger ones get their own.
constexpr size_t kSharedLimit = 10 * kMiB;
constexpr size_t kSharedSegmentBytes = 20 * kMiB;
constexpr size_t kLargeUnit = 512;
// Address space in front of a large segment: the first header ends where a page starts, so a
// tensor of 2^n MiB takes exactly that much of the device's memory.
constexpr size_t kLargeLead = kPageBytes;

size_t largeSizeOf(size_t nbytes) {
  return roundUp(nbytes, kLargeUnit);
}

bool isSplit(const Block* block) {
  return block->previous != nullptr || block->next != nullptr;
}

SplitFigures splitFigures(const Block* block) {
  return isSplit(block) ? SplitFigures{1, block->extent_bytes} : SplitFigures{0, 0};
}

}  // namespace

void Pool::insertFree(Block* block) {
  kLargeRecorder.split(stats_, {0, 0}, splitFigures(block));
  free_large_.insert(block);
}

void Pool::eraseFree(Block* block) {
  kLargeRecorder.split(stats_, splitFigures(block), {0, 0});
  free_large_.erase(block);
}

Block* Pool::takeLarge(size_t nbytes) {
  const size_t size_bytes = largeSizeOf(nbytes);
  const size_t extent_bytes = size_bytes + kHeaderBytes;
  const auto found = free_large_.lower_bound(extent_bytes);
  if (found == free_large_.end()) {
    return nullptr;
  }
  Block* block = *found;
  eraseFree(block);
  const size_t rest_bytes = block->extent_bytes - extent_bytes;
  if (rest_bytes > kSmallLimit + kHeaderBytes) {
    Block* rest =
        makeBlock(reinterpret_cast<char*>(block) + extent_bytes, rest_bytes, device_, kLargeClass);
    rest->previous = block;
    rest->next = block->next;
    if (rest->next != nullptr) {
      rest->next->previous = rest;
    }
    block->next = rest;
    block->extent_bytes = extent_bytes;
    insertFree(rest);
  }
  activate(block, size_bytes, nbytes);
  kLargeRecorder.allocated(stats_, size_bytes, nbytes);
  return block;
}

Pool::Refusal Pool::growLarge(size_t nbytes) {
  if (nbytes > hbm_bytes_) {
    return Refusal::kLimit;
  }
  size_t segment_bytes =
      nbytes > kSharedLimit ? roundUp(nbytes, kSegmentUnit) : kSharedSegmentBytes;
  char* start = nullptr;
  Refusal refusal = grow(segment_bytes, kLargeLead, kLargeRecorder, &start);
  if (refusal != Refusal::kNone && nbytes <= kSharedLimit) {
    segment_bytes = roundUp(nbytes, kSegmentUnit);
    refusal = grow(segment_bytes, kLargeLead, kLargeRecorder, &start);
  }
  if (refusal == Refusal::kNone) {
    Block* block = makeBlock(start + kLargeLead - kHeaderBytes, segment_bytes + kHeaderBytes,
                             device_, kLargeClass);
    large_segments_.insert(block);
    insertFree(block);
  }
  return refusal;
}

void Pool::freeLarge(Block* block) {
  kLargeRecorder.freed(stats_, block->size_bytes, block->requested_bytes);
  block->state = BlockState::kFree;
  Block* next = block->next;
  if (next != nullptr && next->state == BlockState::kFree) {
    eraseFree(next);
    block->extent_bytes += next->extent_bytes;
    block->next = next->next;
  }
  Block* previous = block->previous;
  if (previous != nullptr && previous->state == BlockState::kFree) {
    eraseFree(previous);
    previous->extent_bytes += block->extent_bytes;
    previous->next = block->next;
    block = previous;
  }
  if (block->next != nullptr) {
    block->next->previous = block;
  }
  insertFree(block);
}

void Pool::emptyLarge() {
  for (auto it = free_large_.begin(); it != free_large_.end();) {
    Block* block = *it;
    if (isSplit(block)) {
      ++it;
      continue;
    }
    it = free_large_.erase(it);
    large_segments_.erase(block);
    const size_t segment_bytes = block->extent_bytes - kHeaderBytes;
    release(reinterpret_cast<char*>(block) + kHeaderBytes - kLargeLead, segment_bytes, kLargeLead,
            kLargeRecorder);
  }
}

}  // namespace torchneuron
