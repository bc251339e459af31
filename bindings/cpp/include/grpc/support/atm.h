// Atomic words, as programs of gRPC use them.
#ifndef TRUNKLINE_GRPC_SUPPORT_ATM_H
#define TRUNKLINE_GRPC_SUPPORT_ATM_H

#include <stdint.h>

typedef intptr_t gpr_atm;

#define gpr_atm_no_barrier_load(word) __atomic_load_n((word), __ATOMIC_RELAXED)
#define gpr_atm_acq_load(word) __atomic_load_n((word), __ATOMIC_ACQUIRE)
#define gpr_atm_no_barrier_store(word, value) __atomic_store_n((word), (gpr_atm)(value), __ATOMIC_RELAXED)
#define gpr_atm_rel_store(word, value) __atomic_store_n((word), (gpr_atm)(value), __ATOMIC_RELEASE)
#define gpr_atm_no_barrier_fetch_add(word, more) __atomic_fetch_add((word), (gpr_atm)(more), __ATOMIC_RELAXED)
#define gpr_atm_full_fetch_add(word, more) __atomic_fetch_add((word), (gpr_atm)(more), __ATOMIC_ACQ_REL)

#endif
