#pragma once
// this_threads<T>(): one T per thread, constructed at the thread's first call and destroyed with the thread. It throws
// std::bad_alloc without memory. glibc ends the process in that case for a thread_local with a destructor.
#include <pthread.h>

#include <memory>
#include <new>

namespace hone {

template <class T>
T& this_threads() {
  static const pthread_key_t key = [] {
    pthread_key_t out{};
    if (::pthread_key_create(&out, [](void* made) { delete static_cast<T*>(made); }) != 0) throw std::bad_alloc();
    return out;
  }();
  if (void* const there = ::pthread_getspecific(key)) return *static_cast<T*>(there);
  auto made = std::make_unique<T>();
  if (::pthread_setspecific(key, made.get()) != 0) throw std::bad_alloc();
  return *made.release();
}

}  // namespace hone
