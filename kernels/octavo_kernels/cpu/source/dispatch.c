#define _GNU_SOURCE
#include "team.h"

#include <stdio.h>
#include <string.h>

#if defined(__x86_64__) && defined(__linux__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

extern const octavo_variant octavo_variant_generic;

static int always(void) {
    return 1;
}

#if defined(__x86_64__)
extern const octavo_variant octavo_variant_avx2, octavo_variant_avx512, octavo_variant_avx512bf16;

static int has_avx2(void) {
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c");
}

static int has_avx512(void) {
    return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
}

static int has_avx512bf16(void) {
    return has_avx512() && __builtin_cpu_supports("avx512bf16") && __builtin_cpu_supports("avx512vnni");
}
#endif

#if defined(__x86_64__) && defined(__linux__)
extern const octavo_variant octavo_variant_amx;

/* Linux lets a process use tile data only once it has asked. */
static int has_amx(void) {
    enum { REQUEST_PERMISSION = 0x1023, TILE_DATA = 18, TILE_BITS = (1 << 22) | (1 << 24) | (1 << 25) };
    unsigned a, b, c, d;
    return has_avx512bf16() && __get_cpuid_count(7, 0, &a, &b, &c, &d) && (d & TILE_BITS) == TILE_BITS &&
           syscall(SYS_arch_prctl, REQUEST_PERMISSION, TILE_DATA) == 0;
}
#endif

static const struct {
    const octavo_variant *variant;
    int (*runs)(void);
} CHOICES[] = {
#if defined(__x86_64__) && defined(__linux__)
    {&octavo_variant_amx, has_amx},
#endif
#if defined(__x86_64__)
    {&octavo_variant_avx512bf16, has_avx512bf16},
    {&octavo_variant_avx512, has_avx512},
    {&octavo_variant_avx2, has_avx2},
#endif
    {&octavo_variant_generic, always},
};

const octavo_variant *octavo_find_variant(const char *name) {
    for (size_t i = 0; i < sizeof CHOICES / sizeof *CHOICES; i++)
        if (strcmp(CHOICES[i].variant->name, name) == 0)
            return CHOICES[i].runs() ? CHOICES[i].variant : NULL;
    return NULL;
}

const char *octavo_variants(void) {
    static _Thread_local char names[128];
    names[0] = 0;
    for (size_t i = 0; i < sizeof CHOICES / sizeof *CHOICES; i++)
        if (CHOICES[i].runs()) {
            if (names[0])
                strcat(names, " ");
            strcat(names, CHOICES[i].variant->name);
        }
    return names;
}
