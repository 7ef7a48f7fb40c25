@DIMENSIONS 2

@classlabel TRUE  walking
@Data
 # comment
 1 , +2 : 3, 4 : Walking 
