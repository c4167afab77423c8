#pragma once
// this_threads<T>(): one T of each thread, made when the thread first asks for it, and gone with the thread. Unlike a
// thread_local with a destructor, for which glibc ends the process where it has no memory to note it down, this throws
// std::bad_alloc there.
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
