// A clock over lane time. `t` follows performance.now, so late frames do not slow the replay down. Callbacks: onTime
// (each new t) and onState (played, paused, speed changed, end reached or left by seeking).

export class Replay {
  constructor() {
    Object.assign(this, { onTime: () => {}, onState: () => {}, t: 0, speed: 1, playing: false, duration: 0,
      times: [0] });
  }

  load(duration, times) {
    this.pause();
    Object.assign(this, { duration, times, t: duration });
  }

  play() {
    if (this.playing || this.duration <= 0) return;
    if (this.t >= this.duration) this.seek(0);
    this.playing = true;
    this.anchor();
    this.onState();
    this.request = requestAnimationFrame(() => this.tick());
  }

  pause() {
    cancelAnimationFrame(this.request);
    if (!this.playing) return;
    this.playing = false;
    this.onState();
  }

  toggle() { if (this.playing) this.pause(); else this.play(); }

  anchor() { this.origin = { wall: performance.now(), t: this.t }; }

  // Set t to what it is now.
  advance() {
    this.t = Math.min(this.duration, this.origin.t + (this.speed * (performance.now() - this.origin.wall)) / 1000);
  }

  tick() {
    this.advance();
    this.onTime(this.t);
    if (this.t < this.duration) this.request = requestAnimationFrame(() => this.tick());
    else this.pause();
  }

  setSpeed(speed) {
    if (this.playing) this.advance();
    this.speed = speed;
    this.anchor();
    this.onState();
  }

  seek(t) {
    const ended = this.t >= this.duration;
    this.t = Math.max(0, Math.min(this.duration, t));
    this.anchor();
    this.onTime(this.t);
    if (ended !== this.t >= this.duration) this.onState();
  }

  // Seek to the end of the next or previous step of either lane.
  step(direction) {
    this.pause();
    const near = 1e-7, ahead = (time) => time > this.t + near, behind = (time) => time < this.t - near;
    this.seek(direction > 0 ? this.times.find(ahead) ?? this.duration : this.times.findLast(behind) ?? 0);
  }
}
