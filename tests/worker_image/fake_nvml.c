/* NVIDIA's management library as far as the agent reads it, for tests. Two GPUs, and a third one that is split into MIG devices.
 * Each line of the file that FAKE_NVML names is an event, "INDEX XID", as it is written; "lost" stands for a GPU that is gone.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define GPUS 3
#define SPLIT 2
#define XID_EVENTS 0x8ULL
#define INVALID_ARGUMENT 2
#define NO_PERMISSION 4
#define TIMEOUT 10
#define GPU_IS_LOST 15

typedef struct {
    void *device;
    unsigned long long event_type, event_data;
    unsigned int gpu_instance, compute_instance;
} event_data;

static int devices[GPUS], registered[GPUS], event_set, initialized;
static long read_until;

static int index_of(void *device) { return (int)((int *)device - devices); }

int nvmlInit_v2(void) {
    initialized = 1;
    return getenv("FAKE_NVML") ? 0 : 999;
}

int nvmlDeviceGetCount_v2(unsigned int *count) {
    *count = GPUS;
    return 0;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned int index, void **device) {
    const char *hidden = getenv("FAKE_NVML_HIDDEN");
    if (hidden && (unsigned int)atoi(hidden) == index) return NO_PERMISSION;
    *device = &devices[index];
    return 0;
}

int nvmlDeviceGetUUID(void *device, char *uuid, unsigned int length) {
    snprintf(uuid, length, "GPU-%d%d%d%d", index_of(device), index_of(device), index_of(device), index_of(device));
    return 0;
}

int nvmlDeviceGetMigMode(void *device, unsigned int *current, unsigned int *pending) {
    *current = *pending = index_of(device) == SPLIT;
    return 0;
}

int nvmlDeviceGetSupportedEventTypes(void *device, unsigned long long *types) {
    (void)device;
    *types = XID_EVENTS | 0x3ULL;
    return 0;
}

int nvmlEventSetCreate(void **set) {
    *set = &event_set;
    return initialized ? 0 : 1;
}

int nvmlDeviceRegisterEvents(void *device, unsigned long long types, void *set) {
    if (set != &event_set || types != XID_EVENTS) return INVALID_ARGUMENT;
    registered[index_of(device)] = 1;
    return 0;
}

int nvmlEventSetWait_v2(void *set, event_data *data, unsigned int milliseconds) {
    if (set != &event_set) return INVALID_ARGUMENT;
    memset(data, 0, sizeof *data);
    for (unsigned int waited = 0; waited < milliseconds; waited += 5, usleep(5000)) {
        FILE *file = fopen(getenv("FAKE_NVML"), "r");
        char line[64];
        if (!file) continue;
        fseek(file, read_until, SEEK_SET);
        while (fgets(line, sizeof line, file) && strchr(line, '\n')) {
            int index;
            read_until = ftell(file);
            if (!strncmp(line, "lost", 4)) {
                fclose(file);
                return GPU_IS_LOST;
            }
            if (sscanf(line, "%d %llu", &index, &data->event_data) == 2 && registered[index]) {
                fclose(file);
                data->device = &devices[index];
                data->event_type = XID_EVENTS;
                data->gpu_instance = data->compute_instance = 0xFFFFFFFFu;
                return 0;
            }
        }
        fclose(file);
    }
    return TIMEOUT;
}
