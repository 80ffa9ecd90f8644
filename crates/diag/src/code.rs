//! The closed table of codes. A row gives the name users search for, the exception class it is
//! raised as, and one line for the reference.

/// How bad it is: the first letter of the code.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Severity {
    Error,
    Warning,
    Note,
}

/// One kind for each Python exception class.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Kind {
    Syntax,
    Type,
    Shape,
    Privilege,
    Launch,
    Unsupported,
    Resource,
    Device,
    Tool,
    Check,
    Checkpoint,
    Placement,
    Comm,
    Internal,
}

impl Kind {
    /// The name of the Python exception class.
    pub fn class_name(self) -> &'static str {
        match self {
            Kind::Syntax => "KernelSyntaxError",
            Kind::Type => "KernelTypeError",
            Kind::Shape => "ShapeError",
            Kind::Privilege => "PrivilegeError",
            Kind::Launch => "LaunchError",
            Kind::Unsupported => "UnsupportedError",
            Kind::Resource => "ResourceError",
            Kind::Device => "DeviceError",
            Kind::Tool => "ToolError",
            Kind::Check => "CheckError",
            Kind::Checkpoint => "CheckpointError",
            Kind::Placement => "PlacementError",
            Kind::Comm => "CommError",
            Kind::Internal => "InternalError",
        }
    }
}

macro_rules! codes {
    ($($name:ident $kind:ident $summary:literal)*) => {
        /// A stable name for one thing that can go wrong. A code exists from the commit in which
        /// something can produce it.
        #[allow(non_camel_case_types, clippy::upper_case_acronyms)]
        #[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        pub enum Code { $(#[doc = $summary] $name),* }

        impl Code {
            pub const ALL: &'static [Code] = &[$(Code::$name),*];
            pub fn name(self) -> &'static str { match self { $(Code::$name => stringify!($name)),* } }
            pub fn kind(self) -> Kind { match self { $(Code::$name => Kind::$kind),* } }
            pub fn summary(self) -> &'static str { match self { $(Code::$name => $summary),* } }
            pub fn parse(text: &str) -> Option<Code> {
                Code::ALL.iter().copied().find(|c| c.name() == text)
            }
        }
    };
}

codes! {
    E_SYNTAX Syntax "The source or IR text does not follow the grammar."
    E_NAME Syntax "A name is not defined where it is used."
    E_GRAPH_INVALID Syntax "The program's structure is not one a kernel or IR module may have."
    E_STYLE_MIX Syntax "A lane kernel uses tile operations, or a group kernel uses lane ids."
    E_TYPE Type "A value has a type that the operation does not take."
    E_UNSUPPORTED_DTYPE Type "A name that stands where a dtype is expected names none."
    E_SHAPE_MISMATCH Shape "Two shapes or ranks that must agree do not."
    E_RAGGED Shape "A reduction would take in padding zeros of a tile that leaves its tensor."
    E_DYNAMIC_EXTENT Shape "The extent of a slice is not a compile-time integer."
    E_SPECIALIZE Shape "A compile-time value is missing or breaks a constraint."
    E_PRIVILEGE Privilege "A parameter is accessed in a way its privilege does not allow, or arguments overlap."
    E_READ_ONLY Privilege "A kernel would write into an array that is read-only."
    E_RACE Privilege "Two groups or lanes reach one element without order, and one of them writes."
    E_ARGUMENT Launch "A call does not fit the kernel's parameters."
    E_LAUNCH_INVALID_SHAPE Launch "An array's shape does not fit the kernel's annotation."
    E_LAUNCH_BAD_LAYOUT Launch "An array's memory layout cannot be used."
    E_LAUNCH_DEVICE_MISMATCH Launch "Arguments live on different devices, or not on the backend's device."
    E_LAUNCH_GEOMETRY Launch "The launch grid can neither be inferred nor was given."
    E_UNSUPPORTED Unsupported "The construct is reserved or not supported here."
    E_TUNE_SPACE_EMPTY Launch "An autotuning space has no legal candidate."
    E_TUNE_MEASURE_FAIL Launch "No candidate of an autotuning space could be measured."
    E_TILE_LOWERING Resource "A kernel needs more of a resource than the target has."
    E_OOM Resource "Memory ran out."
    E_TOO_LARGE Resource "A program has more operations than the compiler takes."
    E_DIVERGENT_BARRIER Check "A barrier stands under lane-dependent control flow."
    E_UNINIT Check "A value is read that was never written."
    E_UNWAITED Check "A buffer is used while a copy into it has not been waited for."
    E_ASSERT Check "An assertion of the kernel does not hold."
    E_OOB Check "A scalar or gathered element is outside its array."
    E_OVERFLOW Check "Integer arithmetic that makes an index leaves the range of its dtype."
    E_DIV_ZERO Check "An integer is divided by zero."
    E_NAN_INF Check "An op makes NaN or an infinity of finite numbers, and it is stored."
    E_CHECKPOINT Checkpoint "A checkpoint cannot be written or read."
    E_NONDETERMINISTIC Unsupported "A kernel cannot promise the same bits from run to run, as the profile asks."
    E_DRIVER Device "A device or its driver is missing or failed."
    E_ILLEGAL_ADDRESS Device "A kernel reached an address of the device where it has no memory."
    E_MISALIGNED_ACCESS Device "A kernel reached memory of the device at an address that is not a multiple of the access."
    E_TIMEOUT Device "A kernel or a wait for it took longer than the device's driver lets it."
    E_CAPTURE Launch "An operation cannot be part of a graph that is being recorded."
    E_TARGET_CODEGEN Tool "The target's assembler is missing or refused the generated code."
    E_MESH Placement "A mesh cannot be, or has no such axis or coordinate."
    E_PLACEMENT Placement "A placement does not fit the array, the mesh, or what is done with it."
    E_UNEVEN Placement "Blocks would differ in size where equal ones are required."
    E_NOT_ADDRESSABLE Placement "A block of an array is in another process."
    E_MAPPER Placement "A mapper raised an exception, or answered what it may not."
    E_DESYNC Comm "Ranks of a mesh disagree on the collectives that they call, or a message was damaged."
    E_COMM_INIT Comm "Processes could not be joined: one is missing, refused, or on another host."
    E_RANK_LOST Comm "A process that others need has ended, was stopped, or cannot be reached."
    E_TIMEOUT_COMM Comm "A collective was not complete within the time limit: a process has not arrived."
    E_UNKNOWN Internal "The compiler failed in a way it should not."
    W_RESPECIALISE Type "A compile-time parameter takes many values, and each is compiled anew."
    W_DTYPE_FALLBACK Type "A dtype the target lacks was widened."
    W_EMULATED Type "A matmul of narrow or block-scaled operands is computed with wider ones."
    W_CACHE_IO Tool "The cache of compiled kernels could not be read or written."
    W_CACHE_UNTRUSTED Tool "The cache of compiled kernels, or a file of it, could have been written by others and was not used."
    W_HOST_COPY Launch "Arrays are copied between host and device at every call."
    W_REGISTER_SPILL Resource "Tiles do not fit in the registers of the threads that a kernel pins, and spill to memory."
    W_DUMP_IO Tool "A dump of the IR could not be written."
    W_VIRTUAL_DEVICE Placement "Devices of a mesh that this machine lacks are played by others."
    W_UNEVEN Placement "The largest block of an array is more than a tenth above the mean."
    W_RESHARD Placement "A call brings an array to another placement, in which a rank gets more than a quarter of its device's memory."
    W_MAPPER Placement "A mapper gave an answer that is not known; the default was used."
    W_DEPRECATED Syntax "A name was used that the next release will not have."
    N_IMPLICIT_TILE Syntax "Unbound `tile_*` names were read as tile origins."
    N_NOT_PIPELINED Syntax "Loads of a loop are not copied ahead of its iterations."
    N_BUFFER_IN_MEMORY Syntax "A shared buffer stays in shared memory and is not a value."
    N_NO_ASYNC_MMA Syntax "MMAs are issued by warps and not asynchronously."
    N_NO_LAZY_RESCALE Syntax "An online softmax rescales its accumulator in every iteration."
    N_NO_CLUSTER Syntax "Blocks do not run in the clusters that the schedule requests."
    N_WHOLE_KERNEL Syntax "A kernel runs on whole arrays of a mesh on each rank."
    N_NO_PINGPONG Syntax "Warpgroups do not take output tiles in turn as the schedule requests."
}

impl Code {
    /// What can be said to do about every error of the code; an error's own help says more. `None` where what is
    /// wrong differs too much: there each error names its fix.
    pub fn general_help(self) -> Option<&'static str> {
        Some(match self {
            Code::E_UNKNOWN => "this is a fault of Tessera: please report it with the kernel",
            Code::E_TARGET_CODEGEN => {
                "this is a fault of Tessera, or an assembler that is too old: please report it with the kernel"
            }
            Code::E_DRIVER => {
                "`tessera doctor` says which devices and drivers there are, and what they miss"
            }
            Code::E_OOM => "free arrays that are not needed, or work on smaller parts",
            Code::E_TIMEOUT => "launch smaller parts one after another",
            Code::E_ILLEGAL_ADDRESS | Code::E_MISALIGNED_ACCESS => {
                "`k.check(…)` with the same arguments finds the line; if it finds none, please report it"
            }
            Code::E_CAPTURE => "do it before the recording begins or after it ends",
            Code::E_TILE_LOWERING => "use smaller tiles, fewer stages, or a loop over parts",
            Code::E_UNINIT => {
                "write each element before it is read; between lanes a barrier() comes first"
            }
            Code::E_DIV_ZERO => "test the divisor first: `a // b if b != 0 else 0`",
            Code::E_NAN_INF => {
                "keep the operands where the op is defined: mask them with ts.tile.where, or add an epsilon"
            }
            Code::E_OOB => {
                "guard the access with `if`, or mask it; a position outside reads 0 and is not written"
            }
            Code::E_OVERFLOW => "compute positions in ts.i64",
            _ => return None,
        })
    }

    pub fn severity(self) -> Severity {
        match self.name().as_bytes()[0] {
            b'E' => Severity::Error,
            b'W' => Severity::Warning,
            _ => Severity::Note,
        }
    }
}

impl std::fmt::Display for Code {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}
