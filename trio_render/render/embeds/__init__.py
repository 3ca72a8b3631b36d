"""What `render.prompt_embeds` is made of: base64, file formats, and their bounds."""
