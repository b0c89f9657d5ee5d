/* Stands in for libnvidia-ml.so.1. What it answers is in the file that FAKE_NVML names, read anew at
 * each call; one line a key:
 *
 *   devices 2
 *   temperature 40 41 42       one a call, the last for ever
 *   temperature.1 70           of device 1 alone
 *   error.nvmlDeviceGetTemperature 15
 *   hang.nvmlDeviceGetTemperature 5     seconds; below 0: for ever
 *
 * What has no line is not supported. With -DOLD_DRIVER the functions that came late are missing. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SUCCESS = 0, INVALID = 2, NOT_SUPPORTED = 3, MISMATCH = 25 };
typedef struct { int index; } Device;
static Device devices[16];

/* The value number `at` of `key`, or its last; 0 where there is no such line. */
static int find(const char *key, int at, double *value, char *text) {
    const char *path = getenv("FAKE_NVML");
    FILE *file = path ? fopen(path, "r") : NULL;
    char line[4096];
    int found = 0;
    while (file && !found && fgets(line, sizeof line, file)) {
        char *rest = line, *word = strsep(&rest, " \n");
        if (strcmp(word, key) || !rest) continue;
        if (text) { rest[strcspn(rest, "\n")] = 0; strcpy(text, rest); }
        while ((word = strsep(&rest, " \n")) && *word && at-- >= 0) *value = atof(word);
        found = 1;
    }
    if (file) fclose(file);
    return found;
}

static int look(Device *device, const char *key, int at, double *value, char *text) {
    char own[128];
    snprintf(own, sizeof own, "%s.%d", key, device ? device->index : 0);
    return find(own, at, value, text) || find(key, at, value, text);
}

/* Hangs or fails as the script says, for any function. */
static int before(const char *function) {
    char key[128];
    double value = 0;
    snprintf(key, sizeof key, "hang.%s", function);
    if (find(key, 0, &value, NULL)) {
        if (value < 0) for (;;) pause();
        usleep((useconds_t)(value * 1e6));
    }
    snprintf(key, sizeof key, "error.%s", function);
    return find(key, 0, &value, NULL) ? (int)value : SUCCESS;
}
#define BEFORE do { int code_ = before(__func__); if (code_) return code_; } while (0)

static int number(Device *device, const char *key, double *value) {
    return look(device, key, 0, value, NULL) ? SUCCESS : NOT_SUPPORTED;
}

static int whole(Device *device, const char *key, unsigned *value) {
    double found = 0;
    int code = number(device, key, &found);
    if (!code) *value = (unsigned)(long long)found;
    return code;
}

static int temperature(Device *device, int *value) {
    static int calls[16];
    double found = 0;
    if (!look(device, "temperature", calls[device->index]++, &found, NULL)) return NOT_SUPPORTED;
    *value = (int)(long long)found;
    return SUCCESS;
}

static int text(Device *device, const char *key, char *buffer, unsigned size) {
    double ignored;
    char found[4096];
    if (!look(device, key, 0, &ignored, found)) return NOT_SUPPORTED;
    snprintf(buffer, size, "%s", found);
    return SUCCESS;
}

const char *nvmlErrorString(int code) {
    static char words[32];
    if (code == 15) return "GPU is lost";
    snprintf(words, sizeof words, "Error %d", code);
    return words;
}

int nvmlInit_v2(void) { BEFORE; return SUCCESS; }

int nvmlDeviceGetCount_v2(unsigned *count) { BEFORE; return whole(NULL, "devices", count); }

int nvmlDeviceGetHandleByIndex_v2(unsigned index, Device **device) {
    BEFORE;
    if (index >= 16) return INVALID;
    devices[index].index = (int)index;
    *device = &devices[index];
    return SUCCESS;
}

int nvmlSystemGetDriverVersion(char *buffer, unsigned size) {
    BEFORE;
    return text(NULL, "driver", buffer, size);
}
int nvmlDeviceGetName(Device *d, char *buffer, unsigned size) {
    BEFORE;
    return text(d, "name", buffer, size);
}
int nvmlDeviceGetUUID(Device *d, char *buffer, unsigned size) {
    BEFORE;
    return text(d, "uuid", buffer, size);
}

int nvmlDeviceGetTemperature(Device *d, int sensor, unsigned *value) {
    BEFORE;
    return sensor ? INVALID : temperature(d, (int *)value);
}

int nvmlDeviceGetTemperatureThreshold(Device *d, int kind, unsigned *value) {
    static const char *keys[] = {"threshold_shutdown", "threshold_slowdown", "threshold_memory_max",
                                 "threshold_gpu_max"};
    BEFORE;
    return whole(d, keys[kind], value);
}

int nvmlDeviceGetClockInfo(Device *d, int kind, unsigned *value) {
    BEFORE;
    return kind == 1 ? whole(d, "sm_clock", value) : NOT_SUPPORTED;
}
int nvmlDeviceGetMaxClockInfo(Device *d, int kind, unsigned *value) {
    BEFORE;
    return kind == 1 ? whole(d, "max_sm_clock", value) : NOT_SUPPORTED;
}
int nvmlDeviceGetPowerUsage(Device *d, unsigned *value) { BEFORE; return whole(d, "power", value); }
int nvmlDeviceGetEnforcedPowerLimit(Device *d, unsigned *value) {
    BEFORE;
    return whole(d, "power_limit", value);
}
int nvmlDeviceGetFanSpeed(Device *d, unsigned *value) { BEFORE; return whole(d, "fan", value); }

int nvmlDeviceGetMigMode(Device *d, unsigned *current, unsigned *pending) {
    BEFORE;
    *pending = 0;
    return whole(d, "mig", current);
}

typedef struct { unsigned gpu, memory; } Utilisation;
int nvmlDeviceGetUtilizationRates(Device *d, Utilisation *rates) {
    BEFORE;
    int code = whole(d, "utilisation_gpu", &rates->gpu);
    return code ? code : whole(d, "utilisation_memory", &rates->memory);
}

typedef struct { unsigned long long total, free, used; } Memory;
int nvmlDeviceGetMemoryInfo(Device *d, Memory *memory) {
    double total = 0, used = 0, reserved = 0;
    BEFORE;
    int code = number(d, "memory_total", &total) | number(d, "memory_used", &used);
    number(d, "memory_reserved", &reserved); /* this older function counts it as used */
    memory->total = (unsigned long long)total;
    memory->used = (unsigned long long)(used + reserved);
    memory->free = memory->total - memory->used;
    return code;
}

typedef union { double d; int i; unsigned u; unsigned long long q; } Value;
typedef struct {
    unsigned id, scope;
    long long timestamp, latency;
    unsigned type, code;
    Value value;
} Field;

#ifdef OLD_DRIVER
static void fill(Device *d, Field *field) {
    (void)d;
    field->code = INVALID;
}
#else
static void fill(Device *d, Field *field) {
    static const struct { unsigned id, type; const char *key; } known[] = {
        {193, 5, "margin_shutdown"},  {194, 5, "margin_slowdown"}, {195, 5, "margin_memory_max"},
        {196, 5, "margin_gpu_max"},   {269, 3, "throttled_software_thermal"},
        {270, 3, "throttled_hardware_thermal"}, {271, 3, "throttled_power_brake"}};
    double value = 0;
    field->code = NOT_SUPPORTED;
    for (unsigned k = 0; k < sizeof known / sizeof *known; k++) {
        if (known[k].id != field->id || number(d, known[k].key, &value)) continue;
        field->code = SUCCESS;
        field->type = known[k].type;
        if (field->type == 5) field->value.i = (int)value;
        else field->value.q = (unsigned long long)value;
    }
}
#endif

int nvmlDeviceGetFieldValues(Device *d, int count, Field *fields) {
    BEFORE;
    for (int k = 0; k < count; k++) fill(d, &fields[k]);
    return SUCCESS;
}

static int reasons(Device *d, unsigned long long *mask) {
    unsigned value = 0;
    int code = whole(d, "reasons", &value);
    *mask = value;
    return code;
}

#ifdef OLD_DRIVER
int nvmlDeviceGetCurrentClocksThrottleReasons(Device *d, unsigned long long *mask) {
    BEFORE;
    return reasons(d, mask);
}
#else
int nvmlDeviceGetCurrentClocksEventReasons(Device *d, unsigned long long *mask) {
    BEFORE;
    return reasons(d, mask);
}

typedef struct { unsigned version, sensor; int temperature; } Temperature;
int nvmlDeviceGetTemperatureV(Device *d, Temperature *reading) {
    BEFORE;
    return reading->version == (sizeof *reading | 1 << 24) ? temperature(d, &reading->temperature)
                                                           : MISMATCH;
}

typedef struct { unsigned version; int margin; } Margin;
int nvmlDeviceGetMarginTemperature(Device *d, Margin *reading) {
    BEFORE;
    return reading->version == (sizeof *reading | 1 << 24)
               ? whole(d, "margin", (unsigned *)&reading->margin)
               : MISMATCH;
}

typedef struct { unsigned version; unsigned long long total, reserved, free, used; } Memory2;
int nvmlDeviceGetMemoryInfo_v2(Device *d, Memory2 *memory) {
    double total = 0, used = 0, reserved = 0;
    BEFORE;
    if (memory->version != (sizeof *memory | 2 << 24)) return MISMATCH;
    int code = number(d, "memory_total", &total) | number(d, "memory_used", &used);
    number(d, "memory_reserved", &reserved);
    memory->total = (unsigned long long)total;
    memory->used = (unsigned long long)used;
    memory->reserved = (unsigned long long)reserved;
    memory->free = memory->total - memory->used - memory->reserved;
    return code;
}
#endif
