/* Rows of activations and how to read and write them as floats. */
#ifndef OCTAVO_MATRIX_H
#define OCTAVO_MATRIX_H

INLINE char *row_of(const octavo_matrix *m, int64_t i) {
    return (char *)m->data + i * m->stride;
}

INLINE floats read_floats(const void *row, int32_t type, int64_t i) {
    return type == OCTAVO_BFLOAT16 ? load_bfloat16((const uint16_t *)row + i) : load((const float *)row + i);
}

INLINE void write_floats(void *row, int32_t type, int64_t i, floats v) {
    if (type == OCTAVO_BFLOAT16)
        store_bfloat16((uint16_t *)row + i, v);
    else
        store((float *)row + i, v);
}

INLINE float read_float(const void *row, int32_t type, int64_t i) {
    return type == OCTAVO_BFLOAT16 ? from_bfloat16(((const uint16_t *)row)[i]) : ((const float *)row)[i];
}

INLINE void write_float(void *row, int32_t type, int64_t i, float x) {
    if (type == OCTAVO_BFLOAT16)
        ((uint16_t *)row)[i] = to_bfloat16(x);
    else
        ((float *)row)[i] = x;
}

INLINE int64_t element_size(int32_t type) {
    return type == OCTAVO_FLOAT32 ? 4 : type == OCTAVO_INT8 ? 1 : 2;
}

#endif
