/*
 * A policy module in C: calls pass whose message field has one of the values the configuration lists.
 *
 *     [[policy]]
 *     name = "tenants"
 *     kind = "module"
 *     side = "server"
 *     service = "shop.v1.Shop"
 *     path = "/usr/lib/trunkline/libfield_check.so"
 *     config = { field = "request.tenant", allowed = ["blue", "green"] }
 *
 * Its state is how many calls it has refused, so that the number survives its upgrades; the caller is told the number.
 *
 * Build: cc -std=c11 -shared -fPIC -fvisibility=hidden -O2 -I core/module-abi/include -o libfield_check.so field_check.c
 */
#include "trunkline_policy.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ALLOWED_MAX 64

typedef struct text {
    char *data;
    size_t bytes;
} text;

typedef struct field_check {
    text expression;
    trunkline_field field;
    text allowed[ALLOWED_MAX];
    size_t allowed_count;
    uint64_t refused;
} field_check;

static int32_t say(trunkline_words *words, int32_t code, const char *why) {
    size_t bytes = strlen(why);
    if (bytes > words->capacity)
        bytes = words->capacity;
    memcpy(words->data, why, bytes);
    words->bytes = (uint32_t)bytes;
    return code;
}

static int equals(trunkline_slice slice, const char *literal) {
    return slice.bytes == strlen(literal) && memcmp(slice.data, literal, slice.bytes) == 0;
}

static int begins(trunkline_slice slice, const char *literal) {
    return slice.bytes >= strlen(literal) && memcmp(slice.data, literal, strlen(literal)) == 0;
}

static int copy(text *to, trunkline_slice from) {
    to->data = malloc(from.bytes + 1);
    if (!to->data)
        return 0;
    if (from.bytes)
        memcpy(to->data, from.data, from.bytes);
    to->bytes = from.bytes;
    return 1;
}

static void destroy(void *instance) {
    field_check *check = instance;
    free(check->expression.data);
    for (size_t i = 0; i < check->allowed_count; i++)
        free(check->allowed[i].data);
    free(check);
}

/* Takes one value of the configuration; returns what is wrong with it. */
static const char *take(field_check *check, const trunkline_pair *pair) {
    if (pair->value.kind != TRUNKLINE_KIND_TEXT)
        return "field and allowed are text";
    if (equals(pair->key, "field"))
        return copy(&check->expression, pair->value.text) ? NULL : "no memory";
    if (!begins(pair->key, "allowed."))
        return "its keys: field, allowed";
    if (check->allowed_count == ALLOWED_MAX)
        return "allowed has more than 64 values";
    if (!copy(&check->allowed[check->allowed_count], pair->value.text))
        return "no memory";
    check->allowed_count++;
    return NULL;
}

static int32_t create(const trunkline_config *config, trunkline_created *out, trunkline_words *words) {
    field_check *check = calloc(1, sizeof *check);
    if (!check)
        return say(words, TRUNKLINE_REFUSED, "no memory");
    const char *wrong = NULL;
    for (uint32_t i = 0; i < config->pairs_count && !wrong; i++)
        wrong = take(check, &config->pairs[i]);
    if (!wrong && !check->expression.data)
        wrong = "field is missing: write field = \"request.tenant\"";
    if (wrong) {
        destroy(check);
        return say(words, TRUNKLINE_REFUSED, wrong);
    }
    check->field.expression.data = (const uint8_t *)check->expression.data;
    check->field.expression.bytes = check->expression.bytes;
    check->field.kind = TRUNKLINE_KIND_TEXT;
    out->instance = check;
    out->fields = &check->field;
    out->fields_count = 1;
    return TRUNKLINE_DONE;
}

static int32_t decide(void *instance, const trunkline_call *call, trunkline_answer *answer, trunkline_words *words) {
    field_check *check = instance;
    (void)words;
    const trunkline_value *value = &call->values[0];
    for (size_t i = 0; value->kind == TRUNKLINE_KIND_TEXT && i < check->allowed_count; i++) {
        const text *allowed = &check->allowed[i];
        if (allowed->bytes == value->text.bytes && memcmp(allowed->data, value->text.data, allowed->bytes) == 0)
            return TRUNKLINE_DONE;
    }
    check->refused++;
    int bytes = snprintf((char *)answer->message.data, answer->message.capacity, "not on the list (refusal %llu)",
                         (unsigned long long)check->refused);
    answer->message.bytes = (uint32_t)bytes;
    answer->verdict = TRUNKLINE_DENY;
    answer->code = 7; /* PERMISSION_DENIED */
    return TRUNKLINE_DONE;
}

static int32_t export_state(const void *instance, const trunkline_sink *sink, trunkline_words *words) {
    const field_check *check = instance;
    trunkline_slice piece = {(const uint8_t *)&check->refused, sizeof check->refused};
    if (sink->write(sink->context, piece))
        return say(words, TRUNKLINE_FAULT, "there is no room for eight bytes");
    return TRUNKLINE_DONE;
}

static int32_t import_state(void *instance, const trunkline_state *state, trunkline_words *words) {
    field_check *check = instance;
    if (state->format != 1 || state->bytes.bytes != sizeof check->refused)
        return say(words, TRUNKLINE_REFUSED, "it reads eight bytes of format 1");
    memcpy(&check->refused, state->bytes.data, sizeof check->refused);
    return TRUNKLINE_DONE;
}

const trunkline_policy_module TRUNKLINE_POLICY_MODULE = {
    TRUNKLINE_POLICY_HEAD,
    .name = TRUNKLINE_TEXT("field-check"),
    .version = TRUNKLINE_TEXT("1"),
    .state_format = 1,
    .create = create,
    .destroy = destroy,
    .decide = decide,
    .export_state = export_state,
    .import_state = import_state,
};
