use super::harness::*;
use super::memory::SAXPY;
use tessera_numerics::DType;

fn put(name: &str, text: &str, lanes: i64, args: &[Arg]) {
    let kernel = Kernel::new(text, lanes);
    let way = &kernel.ways[kernel.ways.len() - 1];
    let code = kernel.code(way, args, 1000);
    let k = code.kernel();
    let flat = format!("{:?}", code.shape);
    std::fs::write(format!("/work/main/target/lanebench/p_{name}.ptx"), format!("// {} {} {flat}\n{}", k.threads, k.dynamic_shared, code.module.text())).unwrap();
}

#[test]
fn dump() {
    for (name, layout) in [("saxpy", Layout::Rows), ("saxpy_skew", Layout::Skewed)] {
        let [x, y] = [1, 2].map(|seed| array(&[1000], DType::F32, layout, seed));
        put(name, SAXPY, 256, &[x, y, scalar(2.0f32)]);
        let [x, y] = [1, 2].map(|seed| array(&[1000], DType::F32, layout, seed));
        put(&name.replace("saxpy", "stencil"), "
func @stencil(%x: view<[n], f32, read>, %y: view<[n], f32, write>, %edge: f32) {kind = lane} {
  %i = tile.linear_id : i64
  %1 = tile.const {value = 1} : i64
  %l = tile.sub %i, %1 : i64
  %r = tile.add %i, %1 : i64
  %a = tile.load %x at(%l) other(%edge) {extent = [0]} : f32
  %b = tile.load %x at(%i) {extent = [0]} : f32
  %c = tile.load %x at(%r) other(%edge) {extent = [0]} : f32
  %ab = tile.add %a, %b : f32
  %s = tile.add %ab, %c : f32
  tile.store %y, %s at(%i) {extent = [0]}
  tile.return
}", 256, &[x, y, scalar(2.0f32)]);
    }
    let [x, y] = [1, 2].map(|seed| array(&[1000], DType::F32, Layout::Rows, seed));
    put("total", "
func @total(%x: view<[n], f32, read>, %y: view<[m], f32, reduce_sum>, %alpha: f32) {kind = lane} {
  %i = tile.linear_id : i64
  %0 = tile.const {value = 0} : i64
  %v = tile.load %x at(%i) {extent = [0]} : f32
  tile.accumulate %y, %v at(%0) {op = sum, extent = [0]}
  tile.return
}", 256, &[x.clone(), y.clone(), scalar(2.0f32)]);
    put("group_total", "
func @group_total(%x: view<[n], f32, read>, %y: view<[m], f32, write>, %alpha: f32) {kind = lane} {
  %i = tile.linear_id : i64
  %l = tile.local_id : i64
  %p = tile.program_id {axis = 0} : i64
  %0 = tile.const {value = 0} : i64
  %v = tile.load %x at(%i) {extent = [0]} : f32
  %s = tile.group_reduce %v {op = sum} : f32
  %c = tile.eq %l, %0 : bool
  tile.if %c do {
    tile.store %y, %s at(%p) {extent = [0]}
    tile.yield
  } do {
    tile.yield
  }
  tile.return
}", 256, &[x.clone(), y.clone(), scalar(2.0f32)]);
    put("scan", "
func @scan(%x: view<[n], f32, read>, %y: view<[n], f32, write>, %alpha: f32) {kind = lane} {
  %i = tile.linear_id : i64
  %v = tile.load %x at(%i) {extent = [0]} : f32
  %s = tile.group_scan %v {op = sum} : f32
  tile.store %y, %s at(%i) {extent = [0]}
  tile.return
}", 256, &[x.clone(), y.clone(), scalar(2.0f32)]);
    let [x, y] = [1, 2].map(|seed| array(&[1000], DType::BF16, Layout::Rows, seed));
    put("bf16", "
func @bf16(%x: view<[n], bf16, read>, %y: view<[n], bf16, read_write>, %alpha: f32) {kind = lane} {
  %i = tile.linear_id : i64
  %v = tile.load %x at(%i) {extent = [0]} : bf16
  %w = tile.load %y at(%i) {extent = [0]} : bf16
  %a = tile.cast %v : f32
  %b = tile.cast %w : f32
  %c = tile.mul %a, %alpha : f32
  %d = tile.add %c, %b : f32
  %e = tile.cast %d : bf16
  tile.store %y, %e at(%i) {extent = [0]}
  tile.return
}", 256, &[x, y, scalar(2.0f32)]);
    // Rows of a matrix by division.
    let x = array(&[10, 100], DType::F32, Layout::Rows, 1);
    let y = array(&[10, 100], DType::F32, Layout::Rows, 2);
    put("rows", "
func @rows(%x: view<[a, b], f32, read>, %y: view<[a, b], f32, read_write>, %alpha: f32) {kind = lane} {
  %i = tile.linear_id : i64
  %b = tile.dim {name = b} : i64
  %r = tile.floordiv %i, %b : i64
  %c = tile.mod %i, %b : i64
  %v = tile.load %x at(%r, %c) {extent = [0, 0]} : f32
  %w = tile.load %y at(%r, %c) {extent = [0, 0]} : f32
  %d = tile.mul %v, %alpha : f32
  %e = tile.add %d, %w : f32
  tile.store %y, %e at(%r, %c) {extent = [0, 0]}
  tile.return
}", 256, &[x, y, scalar(2.0f32)]);
}
