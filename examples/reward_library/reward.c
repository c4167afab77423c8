/* A reward library in C. The score is 1 if the last number of a completion equals the answer, and falls linearly to 0
 * at a distance of `span` (an option).
 *
 *   cc -shared -fPIC -O2 -I rewards/plugins -o reward.so examples/reward_library/reward.c -lm
 *   hone reward --reward "{kind = 'library', path = 'reward.so', options = '{\"span\": 10}'}" \
 *       --in examples/rows.jsonl --json
 */
#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "hone_reward.h"

typedef struct {
  double span;
} closeness;

/* Reads the last number of a text without a terminating zero. Returns 0 if there is none. */
static int last_number(hone_text text, double* out) {
  size_t end = text.size, begin;
  char digits[32];
  while (end > 0 && !isdigit((unsigned char)text.data[end - 1])) --end;
  begin = end;
  while (begin > 0 && end - begin < sizeof digits - 1 &&
         (isdigit((unsigned char)text.data[begin - 1]) || strchr(".-", text.data[begin - 1])))
    --begin;
  if (begin == end) return 0;
  memcpy(digits, text.data + begin, end - begin);
  digits[end - begin] = 0;
  *out = strtod(digits, NULL);
  return isfinite(*out);
}

static void* create(hone_text options, char* error, size_t error_size) {
  closeness* self = malloc(sizeof *self);
  if (!self) return NULL;
  self->span = 10;
  if (options.size > 0) { /* {"span": number}; a real plug-in would use a JSON library */
    char text[128] = "";
    if (options.size < sizeof text) memcpy(text, options.data, options.size);
    if (sscanf(text, " { \"span\" : %lf }", &self->span) != 1 || !(self->span > 0)) {
      snprintf(error, error_size, "options should be {\"span\": a positive number}");
      free(self);
      return NULL;
    }
  }
  return self;
}

static int score(void* reward, const hone_reward_item* items, size_t count, hone_reward_result* results, char* error,
                 size_t error_size) {
  const closeness* self = reward;
  (void)error; /* this reward never fails */
  (void)error_size;
  for (size_t i = 0; i < count; ++i) {
    double wanted, got;
    if (!last_number(items[i].answer, &wanted)) {
      results[i].status = HONE_REWARD_SKIPPED;
      snprintf(results[i].note, sizeof results[i].note, "the answer is no number");
      continue;
    }
    results[i].status = HONE_REWARD_SCORED;
    if (!last_number(items[i].completion, &got)) {
      results[i].score = 0;
      snprintf(results[i].note, sizeof results[i].note, "no number");
      continue;
    }
    results[i].score = fmax(0, 1 - fabs(got - wanted) / self->span);
    snprintf(results[i].note, sizeof results[i].note, "expected %g, got %g", wanted, got);
  }
  return 0;
}

const hone_reward_plugin_description* hone_reward_plugin(uint32_t abi) {
  static const hone_reward_plugin_description description = {HONE_REWARD_ABI, 0, create, score, free};
  return abi == HONE_REWARD_ABI ? &description : NULL;
}
