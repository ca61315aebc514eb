// The threads of parallel regions, on a core each.

#ifdef __linux__

#include <omp.h>
#include <sched.h>

#include <cstdint>
#include <vector>

// Bind the calling thread and those that compute for it; whether they are bound. Not where cores are left over: any of
// them may be busy, and the system knows which.
//
// Unbound, two of them share a core while another program has the other, and wait for each other at every region.
extern "C" bool bind_threads() {
    cpu_set_t allowed;
    if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) return false;
    std::vector<int> cores;
    for (int core = 0; core < CPU_SETSIZE; ++core) {
        if (CPU_ISSET(core, &allowed)) cores.push_back(core);
    }
    if (omp_get_max_threads() != int(cores.size())) return false;
    int64_t bound = 0;
#pragma omp parallel reduction(+ : bound)
    {
        cpu_set_t own;
        CPU_ZERO(&own);
        CPU_SET(cores[omp_get_thread_num()], &own);
        bound += sched_setaffinity(0, sizeof own, &own) == 0;
    }
    return bound == int64_t(cores.size());
}

#else

extern "C" bool bind_threads() { return false; }

#endif
