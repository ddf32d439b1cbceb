// The small half of a pool: blocks of fixed sizes, carved from shared segments.
#include "core/allocator.h"
#include "core/pool.h"
#include "core/pool_parts.h"

#include <algorithm>

namespace torchneuron {

Block* Pool::takeSmall(int size_class, size_t nbytes) {
  Block* block = free_small_[size_class];
  SmallSegment* segment = open_;
  if (C10_LIKELY(block != nullptr)) {
    segment = block->segment;
  } else if (segment == nullptr ||
             segment->uncarved_bytes < kClassBytes[size_class] + kHeaderBytes) {
    return nullptr;
  }
  const SplitFigures before = segment->split();
  if (C10_LIKELY(block != nullptr)) {
    free_small_[size_class] = block->next_free;
  } else {
    block = carve(size_class);
  }
  activate(block, kClassBytes[size_class], nbytes);
  ++segment->num_live;
  segment->live_bytes += static_cast<uint32_t>(block->extent_bytes);
  kSmallRecorder.split(stats_, before, segment->split());
  kSmallRecorder.allocated(stats_, block->size_bytes, nbytes);
  return block;
}

Block* Pool::carve(int size_class) {
  char* end = reinterpret_cast<char*>(open_) + kSmallSegmentBytes;
  const uint32_t extent_bytes = kClassBytes[size_class] + kHeaderBytes;
  Block* block = makeBlock(end - open_->uncarved_bytes, extent_bytes, device_, size_class);
  block->segment = open_;
  open_->uncarved_bytes -= extent_bytes;
  ++open_->num_carved;
  return block;
}

// Cuts what is left of the open segment into free blocks, so that nothing of it is lost.
void Pool::closeSegment() {
  if (open_ == nullptr) {
    return;
  }
  const SplitFigures before = open_->split();
  while (open_->uncarved_bytes >= kSmallestExtent) {
    const size_t room = std::min<size_t>(open_->uncarved_bytes - kHeaderBytes, kSmallLimit);
    int size_class = sizeClassOf(room);
    if (kClassBytes[size_class] > room) {
      --size_class;
    }
    Block* block = carve(size_class);
    block->next_free = free_small_[size_class];
    free_small_[size_class] = block;
  }
  kSmallRecorder.split(stats_, before, open_->split());
  open_ = nullptr;
}

Pool::Refusal Pool::growSmall() {
  char* start = nullptr;
  const Refusal refusal = grow(kSmallSegmentBytes, 0, kSmallRecorder, &start);
  if (refusal == Refusal::kNone) {
    closeSegment();
    open_ = new (start) SmallSegment();
    open_->uncarved_bytes = kSmallSegmentBytes - sizeof(SmallSegment);
    small_segments_.insert(open_);
  }
  return refusal;
}

void Pool::freeSmall(Block* block) {
  SmallSegment* segment = block->segment;
  const SplitFigures before = segment->split();
  --segment->num_live;
  segment->live_bytes -= static_cast<uint32_t>(block->extent_bytes);
  kSmallRecorder.split(stats_, before, segment->split());
  kSmallRecorder.freed(stats_, block->size_bytes, block->requested_bytes);
  block->state = BlockState::kFree;
  block->next_free = free_small_[block->size_class];
  free_small_[block->size_class] = block;
}

void Pool::emptySmall() {
  for (Block*& head : free_small_) {
    Block** link = &head;
    while (Block* block = *link) {
      if (block->segment->num_live == 0) {
        *link = block->next_free;
        dropTwin(block);
      } else {
        link = &block->next_free;
      }
    }
  }
  for (auto it = small_segments_.begin(); it != small_segments_.end();) {
    SmallSegment* segment = *it;
    if (segment->num_live > 0) {
      ++it;
      continue;
    }
    if (segment == open_) {
      open_ = nullptr;
    }
    it = small_segments_.erase(it);
    release(segment, kSmallSegmentBytes, 0, kSmallRecorder);
  }
}

}  // namespace torchneuron
