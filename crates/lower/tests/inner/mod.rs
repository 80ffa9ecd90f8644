//! Decisions of single passes.

mod bounded;
mod cover;
mod dynamic_scheduler;
mod gate;
mod machine;
mod mask_elimination;
mod passes;
mod pipeline_plan;
mod runs;
mod strided;
mod unwritten;
