/* hone_reward.h: a reward as a shared library (recipe: reward = {kind = "library", path = "reward.so"}). Plain C, no
 * other header of hone's.
 *
 * The library exports one function, hone_reward_plugin. hone calls it once with its version of this interface. The
 * library returns its description, which stays valid while the library is loaded, or NULL if it does not support that
 * version. hone refuses a description with another abi.
 *
 * Ownership: every pointer that hone passes is valid only during the call. Texts are UTF-8 as the model wrote them.
 * They may be invalid, may contain zero bytes and are not zero-terminated: use size. The library writes only into
 * memory that hone passes.
 *
 * Threads: score and destroy are called after create has returned, and score is never called after destroy has begun.
 * Several threads call score concurrently unless flags has HONE_REWARD_ONE_THREAD.
 *
 * Promises: an item gets the same score whatever other items a call has, in bounded time. A library runs inside hone's
 * process: if it crashes or hangs, so does hone. Run a reward that may do that as a separate process
 * (kind = "process").
 */
#ifndef HONE_REWARD_H
#define HONE_REWARD_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The version of this interface; it grows with each incompatible change. */
#define HONE_REWARD_ABI 1

typedef struct hone_text {
  const char* data;
  size_t size;
} hone_text;

/* One completion and its task. A text that does not exist has size 0. */
typedef struct hone_reward_item {
  hone_text prompt;
  hone_text messages; /* JSON: [{"role": ..., "content": ...}, ...] if the prompt is a conversation */
  hone_text answer;   /* the reference */
  hone_text columns;  /* JSON: the row of the data set, an object */
  hone_text completion;
  hone_text finish_reason; /* "stop" or "length" */
  const int32_t* ids;      /* token ids of the completion */
  size_t num_ids;
} hone_reward_item;

enum { HONE_REWARD_SCORED = 0, HONE_REWARD_SKIPPED = 1, HONE_REWARD_FAILED = 2 };

/* status is HONE_REWARD_FAILED before the call. */
typedef struct hone_reward_result {
  int32_t status;
  double score;   /* if status is HONE_REWARD_SCORED; finite, within the range of a float */
  char note[256]; /* the reason in a few words, zero-terminated; may be empty */
} hone_reward_result;

enum { HONE_REWARD_ONE_THREAD = 1 };

typedef struct hone_reward_plugin_description {
  uint32_t abi;   /* HONE_REWARD_ABI */
  uint32_t flags; /* 0, or HONE_REWARD_ONE_THREAD */

  /* Makes a reward. options: JSON text of the recipe; size 0 if there is none. On failure returns NULL and writes the
   * reason to error (zero-terminated, at most error_size bytes). */
  void* (*create)(hone_text options, char* error, size_t error_size);

  /* Scores count items; results[i] belongs to items[i]. Returns 0. If the entire call fails, returns another value and
   * writes the reason to error. */
  int (*score)(void* reward, const hone_reward_item* items, size_t count, hone_reward_result* results, char* error,
               size_t error_size);

  void (*destroy)(void* reward);
} hone_reward_plugin_description;

/* The function that the library exports. */
const hone_reward_plugin_description* hone_reward_plugin(uint32_t abi);

#ifdef __cplusplus
}
#endif

#endif
