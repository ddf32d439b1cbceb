/// Locks and fork: a child has only the thread that forked, so a lock that another thread held at
/// that moment would stay locked in it for ever.
#pragma once

#include <pthread.h>
#include <shared_mutex>
#include <type_traits>

namespace torchneuron {

/// Take the lock that `lock()` returns before every fork, and release it in both processes after.
/// Call it where a namespace-scope variable is initialized: what `lock()` makes on its first call
/// is then whole before any thread can fork. Only for locks under which no other one is taken,
/// for their order is that of loading. Not for std::shared_mutex: glibc knows its writer by thread
/// id, which the child's thread does not share.
template <auto lock>
bool holdAcrossForks() {
  static_assert(!std::is_same_v<std::decay_t<decltype(lock())>, std::shared_mutex>);
  lock();
  pthread_atfork([] { lock().lock(); }, [] { lock().unlock(); }, [] { lock().unlock(); });
  return true;
}

}  // namespace torchneuron
