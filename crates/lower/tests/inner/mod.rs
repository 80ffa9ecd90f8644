//! Decisions of single passes.

mod bounded;
mod cover;
mod dynamic_scheduler;
mod mask_elimination;
mod passes;
mod pipeline_plan;
mod runs;
