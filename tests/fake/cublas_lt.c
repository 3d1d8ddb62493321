/* SPDX-License-Identifier: MIT
 *
 * A cuBLASLt that multiplies nothing, beside the driver in cuda.c. */
#include <cublasLt.h>

#include <string.h>

cublasStatus_t cublasLtCreate(cublasLtHandle_t *out)
{
    *out = (cublasLtHandle_t)1;
    return CUBLAS_STATUS_SUCCESS;
}

size_t cublasLtGetVersion(void)
{
    return 1;
}

cublasStatus_t cublasLtMatmulDescInit_internal(cublasLtMatmulDesc_t of,
                                               size_t size,
                                               cublasComputeType_t compute,
                                               cudaDataType_t scale)
{
    (void)compute;
    (void)scale;
    memset(of, 0, size);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t
cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t of,
                               cublasLtMatmulDescAttributes_t name,
                               const void *value, size_t size)
{
    (void)of;
    (void)name;
    (void)size;
    return value ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_INVALID_VALUE;
}

cublasStatus_t cublasLtMatrixLayoutInit_internal(cublasLtMatrixLayout_t of,
                                                 size_t size, cudaDataType type,
                                                 uint64_t rows,
                                                 uint64_t columns, int64_t lead)
{
    (void)type;
    memset(of, 0, size);
    return rows && columns && lead >= (int64_t)rows
               ? CUBLAS_STATUS_SUCCESS
               : CUBLAS_STATUS_INVALID_VALUE;
}

cublasStatus_t
cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t of,
                                 cublasLtMatrixLayoutAttribute_t name,
                                 const void *value, size_t size)
{
    (void)of;
    (void)name;
    (void)value;
    (void)size;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t
cublasLtMatmulPreferenceInit_internal(cublasLtMatmulPreference_t of,
                                      size_t size)
{
    memset(of, 0, size);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t
cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t of,
                                     cublasLtMatmulPreferenceAttributes_t name,
                                     const void *value, size_t size)
{
    (void)of;
    (void)name;
    (void)value;
    (void)size;
    return CUBLAS_STATUS_SUCCESS;
}

/* Two algorithms, of which the first needs a workspace. */
cublasStatus_t cublasLtMatmulAlgoGetHeuristic(
    cublasLtHandle_t handle, cublasLtMatmulDesc_t product,
    cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
    cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
    cublasLtMatmulPreference_t preference, int most,
    cublasLtMatmulHeuristicResult_t found[], int *count)
{
    (void)handle, (void)product, (void)a, (void)b, (void)c, (void)d;
    (void)preference;
    *count = most < 2 ? most : 2;
    memset(found, 0, (size_t)*count * sizeof *found);
    found[0].workspaceSize = 100000;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t
cublasLtMatmulAlgoCheck(cublasLtHandle_t handle, cublasLtMatmulDesc_t product,
                        cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                        cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                        const cublasLtMatmulAlgo_t *algorithm,
                        cublasLtMatmulHeuristicResult_t *result)
{
    (void)handle, (void)product, (void)a, (void)b, (void)c, (void)d;
    (void)algorithm, (void)result;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t
cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t product,
               const void *alpha, const void *a, cublasLtMatrixLayout_t la,
               const void *b, cublasLtMatrixLayout_t lb, const void *beta,
               const void *c, cublasLtMatrixLayout_t lc, void *d,
               cublasLtMatrixLayout_t ld, const cublasLtMatmulAlgo_t *algorithm,
               void *workspace, size_t bytes, cudaStream_t stream)
{
    (void)handle, (void)product, (void)alpha, (void)la, (void)lb, (void)beta;
    (void)lc, (void)ld, (void)algorithm, (void)stream;
    if (!a || !b || !c || !d ||
        (bytes && (!workspace || (uintptr_t)workspace % 256)))
        return CUBLAS_STATUS_INVALID_VALUE;
    return CUBLAS_STATUS_SUCCESS;
}
