/* hone_reward.h: a reward as a shared library (recipe: reward = {kind = "library", path = "reward.so"}). Plain C, no
 * other header of hone's.
 *
 * The library exports one function, hone_reward_plugin. hone calls it once with the version of this interface that it
 * speaks; the library answers with a description of itself, which stays valid for as long as the library is loaded, or
 * NULL if it cannot speak that version. hone refuses a description whose abi is not its own.
 *
 * Ownership: every pointer that hone passes is valid during the call alone; texts are UTF-8 as the model wrote them
 * (which may be invalid, and may hold zero bytes: use size), not zero-terminated. What the library writes goes into
 * memory that hone passes.
 *
 * Threads: create, score and destroy of one object are never called before create has returned or after destroy has
 * begun. score is called from several threads at once, unless flags has HONE_REWARD_ONE_THREAD.
 *
 * Promises: the same item gets the same score whatever stands beside it in a call, in bounded time. A library shares
 * hone's process: if it crashes or hangs, so does hone. What may do that belongs into a process of its own (kind =
 * "process").
 */
#ifndef HONE_REWARD_H
#define HONE_REWARD_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Counts changes of this file that break a library. */
#define HONE_REWARD_ABI 1

typedef struct hone_text {
  const char* data;
  size_t size;
} hone_text;

/* One completion and its task. Texts that there are none of have size 0. */
typedef struct hone_reward_item {
  hone_text prompt;
  hone_text messages; /* JSON: [{"role": ..., "content": ...}, ...] where the prompt is a conversation */
  hone_text answer;   /* the reference */
  hone_text columns;  /* JSON: the dataset's row, an object */
  hone_text completion;
  hone_text finish_reason; /* "stop" or "length" */
  const int32_t* ids;      /* the completion's tokens */
  size_t num_ids;
} hone_reward_item;

enum { HONE_REWARD_SCORED = 0, HONE_REWARD_SKIPPED = 1, HONE_REWARD_FAILED = 2 };

/* Filled with HONE_REWARD_FAILED before the call. */
typedef struct hone_reward_result {
  int32_t status;
  double score;   /* where status is HONE_REWARD_SCORED; finite, within the range of a float */
  char note[256]; /* why, in a few words, zero-terminated; may stay empty */
} hone_reward_result;

enum { HONE_REWARD_ONE_THREAD = 1 };

typedef struct hone_reward_plugin_description {
  uint32_t abi;   /* HONE_REWARD_ABI */
  uint32_t flags; /* 0, or HONE_REWARD_ONE_THREAD */

  /* Makes a reward. options: JSON text, as the recipe has it; size 0 if it has none. Returns NULL when it cannot, and
   * says why in error (zero-terminated, of error_size bytes). */
  void* (*create)(hone_text options, char* error, size_t error_size);

  /* Scores count items; results[i] belongs to items[i]. Returns 0, or anything else when the whole call failed, with
   * the reason in error. */
  int (*score)(void* reward, const hone_reward_item* items, size_t count, hone_reward_result* results, char* error,
               size_t error_size);

  void (*destroy)(void* reward);
} hone_reward_plugin_description;

/* What the library exports. */
const hone_reward_plugin_description* hone_reward_plugin(uint32_t abi);

#ifdef __cplusplus
}
#endif

#endif
