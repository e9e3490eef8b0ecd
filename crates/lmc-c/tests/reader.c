/* A program in C that uses lmc.h: reader FOLDER, where c.rs put the files. Prints nothing, and fails at what is wrong. */
#include <lmc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(what) \
    do { \
        if (!(what)) { \
            fprintf(stderr, "line %d: %s: \"%s\"\n", __LINE__, #what, lmc_error()); \
            exit(1); \
        } \
    } while (0)

static char paths[8][512];

static const char *in(int slot, const char *folder, const char *name) {
    snprintf(paths[slot], sizeof paths[slot], "%s/%s", folder, name);
    return paths[slot];
}

static unsigned char *contents(const char *path, size_t *size) {
    FILE *file = fopen(path, "rb");
    unsigned char *bytes;
    CHECK(file && fseek(file, 0, SEEK_END) == 0);
    *size = (size_t)ftell(file);
    rewind(file);
    bytes = malloc(*size + 1);
    CHECK(bytes && fread(bytes, 1, *size, file) == *size);
    fclose(file);
    return bytes;
}

int main(int argc, char **argv) {
    CHECK(argc == 2);
    const char *alone = in(0, argv[1], "old.lmc"), *delta = in(1, argv[1], "new.lmc"), *base = in(2, argv[1], "old");
    const char *damaged = in(3, argv[1], "damaged.lmc"), *output = in(4, argv[1], "output");
    const char *bases[] = {alone};
    const char *null_bases[] = {NULL};
    size_t old_size, new_size, index;
    unsigned char *old = contents(base, &old_size), *new = contents(in(5, argv[1], "new"), &new_size);
    unsigned char *buffer = malloc(new_size + old_size);
    lmc_file *file = NULL;
    lmc_tensor tensor;

    CHECK(buffer && strlen(lmc_version()) >= 5 && strcmp(lmc_error(), "") == 0);

    /* Tensors, and ranges. */
    CHECK(lmc_open(alone, NULL, 0, &file) == LMC_OK && file);
    CHECK(lmc_size(file) == old_size && lmc_tensor_count(file) > 10);
    CHECK(lmc_tensor_find(file, "model.norm.weight", &index) == LMC_OK);
    CHECK(lmc_tensor_info(file, index, &tensor) == LMC_OK);
    CHECK(strcmp(tensor.name, "model.norm.weight") == 0 && strcmp(tensor.dtype, "BF16") == 0);
    CHECK(tensor.rank == 1 && tensor.shape[0] == 128 && tensor.size == 256);
    for (index = 0; index < lmc_tensor_count(file); index++) {
        CHECK(lmc_tensor_info(file, index, &tensor) == LMC_OK && tensor.offset + tensor.size <= old_size);
        memset(buffer, 0xaa, tensor.size);
        CHECK(lmc_read_tensor(file, index, buffer, tensor.size) == LMC_OK);
        CHECK(memcmp(buffer, old + tensor.offset, tensor.size) == 0);
    }
    CHECK(lmc_read(file, 1000, buffer, 100000) == LMC_OK && memcmp(buffer, old + 1000, 100000) == 0);
    CHECK(lmc_read(file, old_size, NULL, 0) == LMC_OK);

    /* Wrong arguments. */
    CHECK(lmc_read_tensor(file, 0, buffer, 1) == LMC_USAGE && strstr(lmc_error(), "bytes, and the buffer 1"));
    CHECK(lmc_read_tensor(file, 1000, buffer, 1) == LMC_USAGE && strstr(lmc_error(), "no number 1000"));
    CHECK(lmc_read_tensor(file, 0, NULL, 256) == LMC_USAGE && strstr(lmc_error(), "null"));
    CHECK(lmc_read(file, old_size, buffer, 1) == LMC_USAGE && strstr(lmc_error(), "old.lmc"));
    CHECK(lmc_tensor_find(file, "none", &index) == LMC_USAGE && strstr(lmc_error(), "none"));
    CHECK(lmc_tensor_find(file, NULL, &index) == LMC_USAGE && lmc_tensor_info(file, 0, NULL) == LMC_USAGE);
    CHECK(lmc_tensor_info(NULL, 0, &tensor) == LMC_USAGE && lmc_size(NULL) == 0 && lmc_tensor_count(NULL) == 0);
    lmc_close(file);
    lmc_close(NULL);
    CHECK(lmc_open(NULL, NULL, 0, &file) == LMC_USAGE && !file && lmc_open(alone, NULL, 0, NULL) == LMC_USAGE);
    CHECK(lmc_open(alone, NULL, 1, &file) == LMC_USAGE && lmc_open(alone, null_bases, 1, &file) == LMC_USAGE);

    /* Whole files, and a delta. */
    CHECK(lmc_decompress(alone, NULL, 0, buffer, old_size) == LMC_OK && memcmp(buffer, old, old_size) == 0);
    CHECK(lmc_decompress(alone, NULL, 0, buffer, old_size - 1) == LMC_USAGE);
    CHECK(lmc_decompress(delta, NULL, 0, buffer, new_size) == LMC_BASE && strstr(lmc_error(), "base"));
    CHECK(lmc_decompress(delta, bases, 1, buffer, new_size) == LMC_OK && memcmp(buffer, new, new_size) == 0);
    CHECK(lmc_open(delta, NULL, 0, &file) == LMC_OK && lmc_tensor_count(file) > 10);
    CHECK(lmc_read(file, 0, buffer, new_size) == LMC_BASE);
    lmc_close(file);
    CHECK(lmc_open(delta, bases, 1, &file) == LMC_OK);
    CHECK(lmc_read(file, 0, buffer, new_size) == LMC_OK && memcmp(buffer, new, new_size) == 0);
    lmc_close(file);
    free(old);
    CHECK(lmc_decompress_file(delta, bases, 1, output) == LMC_OK);
    old = contents(output, &old_size);
    CHECK(old_size == new_size && memcmp(old, new, new_size) == 0);

    /* Files that are none leave the output as it was. */
    CHECK(lmc_decompress_file(damaged, NULL, 0, output) == LMC_DAMAGED && strstr(lmc_error(), "damaged.lmc"));
    CHECK(lmc_decompress_file(base, NULL, 0, output) == LMC_UNSUPPORTED);
    CHECK(lmc_open(in(6, argv[1], "missing"), NULL, 0, &file) == LMC_IO && strstr(lmc_error(), "missing"));
    CHECK(lmc_decompress_file(alone, NULL, 0, in(7, argv[1], "missing/output")) == LMC_IO);
    free(old);
    old = contents(output, &old_size);
    CHECK(old_size == new_size && memcmp(old, new, new_size) == 0);
    free(old);
    free(new);
    free(buffer);
    return 0;
}
