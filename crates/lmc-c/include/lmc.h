/* Reading files of lmc, the Language Model Compressor.
 *
 *     cargo build --release -p lmc-c      # target/release/liblmc_c.so and liblmc_c.a
 *     cc -I crates/lmc-c/include program.c -L target/release -llmc_c -Wl,-rpath,$PWD/target/release
 *     cc -I crates/lmc-c/include program.c target/release/liblmc_c.a -lpthread -ldl -lm    # or this: static
 *
 * crates/lmc-c/tests/reader.c is a program that calls every function.
 *
 * Functions that return int return LMC_OK, or the kind of an error, of which lmc_error() then has the text. Strings end
 * with a zero byte and are UTF-8; paths are bytes as the system has them, on Windows UTF-8. A null pointer is an error
 * (LMC_USAGE) wherever it is not said to be allowed. Files may come from anywhere: damaged and hostile ones are errors.
 */
#ifndef LMC_H
#define LMC_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum {
    LMC_OK = 0,
    LMC_DAMAGED = 1,     /* not a whole .lmc file, or changed since it was written */
    LMC_UNSUPPORTED = 2, /* written by a later version */
    LMC_LIMIT = 3,       /* larger than memory, or than what may be needed to restore a file */
    LMC_BASE = 4,        /* a delta's base is missing, or another file */
    LMC_IO = 5,          /* the system could not read or write */
    LMC_USAGE = 6,       /* wrong arguments */
    LMC_INTERNAL = 7     /* a defect of this library: the call had no effect but on the caller's buffer */
};

/* An open file. Several threads may read from one at once. A forked child must not: its threads are gone. */
typedef struct lmc_file lmc_file;

/* A tensor of an open file; its pointers are valid until lmc_close. */
typedef struct lmc_tensor {
    const char *name;
    const char *dtype;     /* as in safetensors: "BF16", "F32", "I64"; other formats have more */
    const uint64_t *shape; /* rank numbers */
    size_t rank;
    uint64_t offset;       /* of its first byte in the original file */
    uint64_t size;         /* in bytes */
} lmc_tensor;

/* The version of the library, such as "1.0.0". */
const char *lmc_version(void);

/* The text of the last error of the calling thread, valid until its next call; "" before the first. */
const char *lmc_error(void);

/* Opens a file. A delta is read with the bases that it was made from, in any order: originals or .lmc files, and their
 * own bases among them. Without its bases it can be listed only. `bases` may be null if base_count is 0. */
int lmc_open(const char *path, const char *const *bases, size_t base_count, lmc_file **out);

/* Closes a file. Null is allowed. */
void lmc_close(lmc_file *file);

/* The size of the original file in bytes; 0 of null. */
uint64_t lmc_size(const lmc_file *file);

/* The number of tensors; 0 of null. They are numbered in the order of the file. */
size_t lmc_tensor_count(const lmc_file *file);

/* Describes a tensor. */
int lmc_tensor_info(const lmc_file *file, size_t index, lmc_tensor *out);

/* Finds a tensor by its name. */
int lmc_tensor_find(const lmc_file *file, const char *name, size_t *index);

/* Reads a tensor into `size` bytes, which must be exactly as many as it has. Reads and checks only the blocks that have
 * a part of it. */
int lmc_read_tensor(const lmc_file *file, size_t index, void *buffer, size_t size);

/* Reads `size` bytes of the original file from `offset` on. */
int lmc_read(const lmc_file *file, uint64_t offset, void *buffer, size_t size);

/* Restores a whole file into memory, checks all of it, and needs exactly lmc_size bytes. */
int lmc_decompress(const char *path, const char *const *bases, size_t base_count, void *buffer, size_t size);

/* Restores a whole file, and checks all of it. `output` appears, or is replaced, when all is written and on the disk. */
int lmc_decompress_file(const char *path, const char *const *bases, size_t base_count, const char *output);

#ifdef __cplusplus
}
#endif

#endif
