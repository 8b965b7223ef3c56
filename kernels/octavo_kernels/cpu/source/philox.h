/* Philox4x32-10, the counter-based generator of Salmon et al., "Parallel random numbers: as easy as 1, 2, 3" (2011). */
#ifndef OCTAVO_PHILOX_H
#define OCTAVO_PHILOX_H

/* float32 in [0, 1) with 24 bits: the first word of counter (position, branch, purpose, 0). */
static float uniform(uint32_t position, uint32_t branch, uint32_t purpose, uint64_t seed) {
    uint32_t counter[4] = {position, branch, purpose, 0};
    uint32_t key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
    for (int round = 0; round < 10; round++) {
        uint64_t first = (uint64_t)counter[0] * 0xD2511F53, second = (uint64_t)counter[2] * 0xCD9E8D57;
        counter[0] = (uint32_t)(second >> 32) ^ counter[1] ^ key[0];
        counter[1] = (uint32_t)second;
        counter[2] = (uint32_t)(first >> 32) ^ counter[3] ^ key[1];
        counter[3] = (uint32_t)first;
        key[0] += 0x9E3779B9;
        key[1] += 0xBB67AE85;
    }
    return (float)(counter[0] >> 8) * 0x1p-24f;
}

#endif
