/* Philox4x32-10 and its distributions: one text for plain C (random.c) and for kernels that devices
 * compile. The including file defines DEVICE and the types ulong and uint. */

/* 128 bits of key are folded into Philox's 64 by the name's odd multiple, so that seeds and names
 * cannot cancel each other bit by bit. */
DEVICE ulong fold_key(ulong seed, ulong name) {
    ulong folded = seed + name * 0x9E3779B97F4A7C15UL;
    return folded ^ folded >> 31;
}

/* The multipliers and key increments are the paper's. */
DEVICE void philox(ulong folded, ulong high, ulong low, uint *words) {
    uint k0 = (uint)folded, k1 = (uint)(folded >> 32);
    uint c0 = (uint)low, c1 = (uint)(low >> 32), c2 = (uint)high, c3 = (uint)(high >> 32);
    for (int round = 0; round < 10; round++) {
        ulong p0 = (ulong)0xD2511F53u * c0, p1 = (ulong)0xCD9E8D57u * c2;
        uint n0 = (uint)(p1 >> 32) ^ c1 ^ k0, n2 = (uint)(p0 >> 32) ^ c3 ^ k1;
        c1 = (uint)p1;
        c3 = (uint)p0;
        c0 = n0;
        c2 = n2;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    words[0] = c0;
    words[1] = c1;
    words[2] = c2;
    words[3] = c3;
}

/* Element `index` of the stream: uniform in [0, 1) with 24 bits. */
DEVICE float draw_uniform(ulong seed, ulong name, ulong high, ulong index) {
    uint words[4];
    philox(fold_key(seed, name), high, index >> 2, words);
    return (float)(words[index & 3] >> 8) * 5.9604644775390625e-8f;
}
