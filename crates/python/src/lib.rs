//! The extension module `tessera._core`: conversions and error mapping, no logic. Everything goes
//! into the compiler through [`enter::enter`].

mod aligned;
mod array_interface;
mod arrays;
mod blocks;
mod cache;
mod call;
mod declare;
mod device_array;
mod devices;
mod dist;
mod dist_launch;
mod dist_memory;
mod dist_streams;
mod dist_tasks;
mod dlpack;
mod dtype;
mod enter;
mod exchange;
mod export;
mod graph;
mod holding;
mod kernel;
mod layouts;
mod module;
mod numerics;
mod observe;
mod prepared;
mod processes;
mod profile;
mod readers;
mod record;
mod replay;
mod report;
mod runtime;
mod schedule;
mod spread;
mod streams;
mod tuning;
mod values;
mod watch;

#[pyo3::pymodule]
mod _core {
    use pyo3::prelude::*;

    #[pymodule_export]
    use crate::aligned::aligned_empty;
    #[pymodule_export]
    use crate::cache::{cache_clear, cache_entries, cache_get, cache_put, kept_in_memory};
    #[pymodule_export]
    use crate::device_array::{DeviceArray, device_empty};
    #[pymodule_export]
    use crate::devices::{
        Event, Stream, device_assembler, device_launches, device_memory_stats, device_name,
        device_names, device_of_dlpack, device_synchronize, device_trim, devices, grouped_columns,
        matmul_schedule, named_stream, platforms, set_stream,
    };
    #[pymodule_export]
    use crate::dist::{MeshGrid, PlacedArray, PlacementSpec, Positions};
    #[pymodule_export]
    use crate::dist_launch::{Held, IndexLaunch};
    #[pymodule_export]
    use crate::dist_memory::{combined, converted};
    #[pymodule_export]
    use crate::dist_tasks::{TaskGroup, TaskQueue};
    #[pymodule_export]
    use crate::dtype::{DType, PolicyItem, dtype, dtype_names, is_dtype_name, policy_item};
    #[pymodule_export]
    use crate::graph::{
        Collective, Executable, GraphBuilder, Place, Program, SourceText, TracedKernel,
        check_factors, dim_compute, dim_value,
    };
    #[pymodule_export]
    use crate::kernel::{Compiled, Elaborated, Kernel};
    #[pymodule_export]
    use crate::layouts::layout_text;
    #[pymodule_export]
    use crate::module::{Module, ir_parse};
    #[pymodule_export]
    use crate::numerics::{
        block_formats, numerics_decode, numerics_dequantize, numerics_encode, numerics_quantize,
    };
    #[pymodule_export]
    use crate::processes::{Coordinator, processes_barrier, processes_join, processes_leave};
    #[pymodule_export]
    use crate::profile::{clocks_begin, clocks_end, profile_begin, profile_end};
    #[pymodule_export]
    use crate::record::{Graph, record_begin, record_drop, record_end};
    #[pymodule_export]
    use crate::replay::{
        Calls, Operation, Replayed, note_fixed, note_made, process_profile, scoped_settings,
        trace_closed, trace_opened,
    };
    #[pymodule_export]
    use crate::report::{debug_describe, debug_panic};
    #[pymodule_export]
    use crate::runtime::{
        after_fork, api, backends, before_fork, capabilities, closest, error, forked, free_paths,
        instead_of, knob_table, processor, profiles, real_functions, select_backend, set_threads,
        settings, threads,
    };
    #[pymodule_export]
    use crate::schedule::{pass_names, schedule_fields};
    #[pymodule_export]
    use crate::spread::Spread;
    #[pymodule_export]
    use crate::tuning::{tuning_clear, tuning_export, tuning_import, tuning_list, tuning_merge};
    #[pymodule_export]
    use crate::values::{Func, Name, Table};
    #[pymodule_export]
    use crate::watch::Watch;

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        std::panic::set_hook(Box::new(crate::report::hook));
        tessera_driver::set_interrupt_check(crate::enter::interrupted);
        tessera_driver::set_print(crate::enter::print);
        tessera_driver::tuning::set_progress(crate::tuning::progress);
        module.add("__version__", env!("CARGO_PKG_VERSION"))
    }
}
